// BullMQ: jobs that are due at once. Arguments: port, number of jobs. Output as of the others.
const {Queue, Worker} = require('bullmq');
const [port, count] = process.argv.slice(2).map(Number);
const connection = {host: '127.0.0.1', port, maxRetriesPerRequest: null};

const options = {removeOnComplete: true};

async function add(queue, due) {
  for (let first = 0; first < count; first += 1000) {
    const now = Date.now();
    const opts = {delay: Math.max(due - now, 0), timestamp: now};
    await queue.addBulk(Array.from({length: Math.min(1000, count - first)}, (_, i) => (
      {name: 'j', data: {i: first + i}, opts})));
  }
}

(async () => {
  const queue = new Queue('b', {connection, defaultJobOptions: options});
  await queue.waitUntilReady();
  const due = Math.floor(Date.now() / 1000) * 1000 + 4000 + count / 5;
  const times = [];
  await add(queue, due);
  const handle = async () => { times.push(Date.now() * 1000); };
  const worker = new Worker('b', handle, {connection, concurrency: 50});
  while (times.length < count) await new Promise(done => setTimeout(done, 50));
  await worker.close();
  await queue.close();
  // Exiting earlier would cut off what the pipe has not taken yet.
  process.stdout.write([due * 1000, ...times, ''].join('\n'), () => process.exit(0));
})();
