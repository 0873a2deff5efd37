// BullMQ: jobs that are due at once, or spread evenly over a time. Arguments: port, number of jobs,
// and for the latter the time in milliseconds. Output as of the others.
const {Queue, Worker} = require('bullmq');
const [port, count, within] = process.argv.slice(2).map(Number);
const connection = {host: '127.0.0.1', port, maxRetriesPerRequest: null};

const options = {removeOnComplete: true};

async function add(queue, due) {
  for (let first = 0; first < count; first += 1000) {
    const now = Date.now();
    await queue.addBulk(Array.from({length: Math.min(1000, count - first)}, (_, i) => {
      const at = due + (within ? Math.floor((first + i) * within / count) : 0);
      return {name: 'j', data: {i: first + i}, opts: {delay: Math.max(at - now, 0), timestamp: now}};
    }));
  }
}

(async () => {
  const queue = new Queue('b', {connection, defaultJobOptions: options});
  await queue.waitUntilReady();
  const due = Math.floor(Date.now() / 1000) * 1000 + 4000 + count / 5;
  const times = [];
  const handle = async job => { times.push([job.data.i, Date.now()]); };
  const work = () => new Worker('b', handle, {connection, concurrency: 50});
  // A spread load meets workers that wait for it already.
  let worker = within ? work() : null;
  await add(queue, due);
  worker = worker || work();
  while (times.length < count) await new Promise(done => setTimeout(done, 50));
  const lines = times.map(([i, at]) => (within ? `${i} ${at * 1000}` : at * 1000));
  await worker.close();
  await queue.close();
  // Exiting earlier would cut off what the pipe has not taken yet.
  process.stdout.write([due * 1000, ...lines, ''].join('\n'), () => process.exit(0));
})();
