// BullMQ: jobs that are due at once. Arguments: port, number of jobs. Output as of the others.
const {Queue, Worker} = require('bullmq');
const [port, count] = process.argv.slice(2).map(Number);
const connection = {host: '127.0.0.1', port, maxRetriesPerRequest: null};

(async () => {
  const queue = new Queue('b', {connection, defaultJobOptions: {removeOnComplete: true}});
  await queue.waitUntilReady();
  const due = Math.floor(Date.now() / 1000) * 1000 + 4000 + count / 5;
  for (let first = 0; first < count; first += 1000) {
    const now = Date.now();
    await queue.addBulk(Array.from({length: Math.min(1000, count - first)}, (_, i) =>
      ({name: 'j', data: {i: first + i}, opts: {delay: due - now, timestamp: now}})));
  }
  const times = [];
  const worker = new Worker('b', async () => { times.push(Date.now()); }, {connection, concurrency: 50});
  while (times.length < count) await new Promise(done => setTimeout(done, 50));
  console.log(due * 1000);
  for (const at of times) console.log(at * 1000);
  await worker.close();
  await queue.close();
  process.exit(0);
})();
