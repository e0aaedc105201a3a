// graphile-worker with its defaults and ten jobs at a time.
// Settings: website/docs/error-handling.md of its repository: the jobs of a worker that died stay locked for four hours.
// What is quicker (heartbeats) is in Worker Pro, which is not free.
import { createRequire } from "node:module";
import { appendFileSync } from "node:fs";
const require = createRequire(process.env.FAULTS_MODULES + "/");
const { run, runMigrations, makeWorkerUtils } = require("graphile-worker");

const connectionString = process.env.FAULTS_URL;
const sleep = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));
const note = (what, name) =>
  appendFileSync(process.env.FAULTS_LOG, `${what} ${name} ${Date.now() / 1000} ${process.env.FAULTS_WORKER} ${process.pid}\n`);

async function work({ name }) {
  note("start", name);
  const kind = name.split("-")[0];
  if (kind === "die") { await sleep(0.5); process.exit(9); }
  if (kind.startsWith("hold")) { Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, Number(kind.slice(4)) * 1000); }
  else { await sleep(Number(kind.slice(1))); }
  note("end", name);
}

const [verb, ...names] = process.argv.slice(2);
if (verb === "work") {
  const runner = await run({ connectionString, concurrency: 10, taskList: { work } });
  await runner.promise;
} else if (verb === "setup") {
  await runMigrations({ connectionString });
} else {
  const utils = await makeWorkerUtils({ connectionString });
  for (const name of names) await utils.addJob("work", { name });
  await utils.release();
}
