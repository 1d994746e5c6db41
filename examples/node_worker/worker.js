// A worker in another language (docs/protocol.md, "A client in another language"): linear
// regression in JavaScript, with npm's gRPC and the messages of proto/. In this folder:
//
//   npm ci
//   psctl plan --config=config.textproto --format=json > plan.json
//   ps --config=config.textproto --shard=0 & ps --config=config.textproto --shard=1 &
//   node worker.js plan.json 0 200 & node worker.js plan.json 1 200
//   psctl shutdown --config=config.textproto
//
// usage: node worker.js PLAN RANK ITERATIONS
"use strict";

const crypto = require("crypto");
const fs = require("fs");
const path = require("path");
const grpc = require("@grpc/grpc-js");
const protoLoader = require("@grpc/proto-loader");

const { ParameterServer } = grpc.loadPackageDefinition(
  protoLoader.loadSync("proto/parameter_server.proto", {
    includeDirs: [path.join(__dirname, "..", "..")],
    keepCase: true,
    longs: String, // fixed64 does not fit into a number
    defaults: true,
  }),
).evenshard.v1;

const CALL_SECONDS = 60; // for a call that one shard answers by itself
const STARTUP_SECONDS = 30; // limits.startup_seconds
const RECONNECT_SECONDS = 5; // limits.reconnect_seconds
const REPEATABLE = [grpc.status.UNAVAILABLE, grpc.status.CANCELLED];

const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
const toFixed64 = (digits) => BigInt(`0x${digits}`).toString();
const toBytes = (floats) => Buffer.from(floats.buffer, floats.byteOffset, floats.byteLength);
// A copy, because the bytes of a message may begin anywhere.
const toFloats = (bytes) => new Float32Array(Uint8Array.from(bytes).buffer);

// One shard, and this worker's copy of its parameters, which lies in `model`: arrays by tensor.
class Shard {
  constructor(plan, index, rank, incarnation, model) {
    Object.assign(this, { plan, index, rank, incarnation, model });
    this.client = new ParameterServer(
      plan.shards[index].address,
      grpc.credentials.createInsecure(),
      {
        "grpc.max_receive_message_length": plan.chunk_bytes + (1 << 20),
        "grpc.initial_reconnect_backoff_ms": 100,
        "grpc.max_reconnect_backoff_ms": 500,
      },
    );
    this.chunks = new Map(); // by id: { tensor, begin, size, version }
    this.owed = new Map(); // pushes without an answer, by chunk id
  }

  call(method, request) {
    return new Promise((resolve, reject) => {
      const deadline = Date.now() + 1000 * CALL_SECONDS;
      const done = (error, response) => (error ? reject(error) : resolve(response));
      this.client[method](request, { deadline }, done);
    });
  }

  // Opens the stream, then joins, so that the shard notices from the Join on if this worker dies.
  async join() {
    const metadata = new grpc.Metadata();
    metadata.set("ps-worker", String(this.rank));
    metadata.set("ps-incarnation", this.incarnation);
    metadata.set("ps-join-follows", "1");
    const stream = this.client.Exchange(metadata);
    await new Promise((resolve, reject) => {
      stream.once("metadata", resolve);
      stream.once("error", reject);
    });
    let broken;
    stream.removeAllListeners("error");
    stream.on("error", (error) => {
      broken = error;
      if (this.stream === stream) this.reconnect(error);
    });
    stream.on("data", (message) => message.chunk.forEach((chunk) => this.take(chunk)));
    const response = await this.call("Join", {
      worker: this.rank,
      incarnation: this.incarnation,
      config_fingerprint: toFixed64(this.plan.config_fingerprint),
      plan_fingerprint: toFixed64(this.plan.plan_fingerprint),
      plan_version: this.plan.plan_version,
      protocol_version: this.plan.protocol_version,
    });
    if (this.history !== undefined && response.history !== this.history) {
      throw new Error(`shard ${this.index} was started anew, without its parameters`);
    }
    this.history = response.history;
    if (broken) throw broken;
    this.stream = stream;
    return Number(response.start_iteration);
  }

  // Joins, and tries again for as long as the shard cannot be reached.
  async connect(seconds) {
    const end = Date.now() + 1000 * seconds;
    for (let wait = 0.01; ; wait = Math.min(2 * wait, 0.5)) {
      try {
        return await this.join();
      } catch (error) {
        if (!REPEATABLE.includes(error.code) || Date.now() > end) throw error;
        await pause(wait);
      }
    }
  }

  // Fetches the parameters, in the order of the slices in the plan.
  async pull() {
    const call = this.client.Pull({ plan_fingerprint: toFixed64(this.plan.plan_fingerprint) });
    const places = this.plan.shards[this.index].slices.map((slice) => ({ ...slice }));
    for await (const message of call) {
      const values = toFloats(message.data);
      const place = places[0];
      const chunk = { tensor: place.tensor, begin: place.begin, size: values.length };
      this.chunks.set(message.chunk, chunk);
      this.update(chunk, message.version, values);
      place.begin += values.length;
      place.size -= values.length;
      if (place.size === 0) places.shift();
    }
  }

  update(chunk, version, values) {
    chunk.version = version;
    this.model[chunk.tensor].set(values, chunk.begin);
  }

  // Pushes all gradients of an iteration. Resolves when every updated parameter has come.
  pushPull(iteration, gradients) {
    return new Promise((resolve, reject) => {
      this.settled = { resolve, reject };
      for (const [id, { tensor, begin, size, version }] of this.chunks) {
        this.owed.set(id, {
          worker: this.rank,
          incarnation: this.incarnation,
          iteration,
          chunk: id,
          base_version: version,
          data: toBytes(gradients[tensor].slice(begin, begin + size)),
        });
      }
      this.pushOwed();
    });
  }

  pushOwed() {
    for (const push of this.owed.values()) this.stream.write({ chunk: [push] });
  }

  take(reply) {
    // After a reconnect both answers to a push may come.
    if (Number(reply.iteration) !== this.owed.get(reply.chunk)?.iteration) return;
    this.owed.delete(reply.chunk);
    if (!reply.unchanged) {
      this.update(this.chunks.get(reply.chunk), reply.version, toFloats(reply.data));
    }
    if (this.owed.size === 0) this.settled.resolve();
  }

  // A push that is repeated is counted once, so whatever has no answer is pushed again.
  async reconnect(error) {
    try {
      if (!REPEATABLE.includes(error.code)) throw error;
      await this.connect(RECONNECT_SECONDS);
      this.pushOwed();
    } catch (final) {
      this.settled?.reject(final);
    }
  }

  async leave() {
    await this.call("Leave", { worker: this.rank, incarnation: this.incarnation });
    const { stream } = this;
    this.stream = null; // its end is no reason to connect again
    stream.end();
    this.client.close();
  }
}

// What is to be learned: y = weight . x + 0.5, with weights from -1 to 1.
const INPUTS = 64;
const POINTS = 128; // of one worker in an iteration
const truth = (i) => (2 * i) / (INPUTS - 1) - 1;

// Points of this rank and iteration. The numbers are uniform in [-1, 1): xorshift by Marsaglia.
function drawPoints(rank, iteration) {
  let state = 0x9e3779b9 ^ (rank * 7919 + iteration * 104729 + 1);
  const draw = () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return state / 2 ** 31;
  };
  return Array.from({ length: POINTS }, () => Array.from({ length: INPUTS }, draw));
}

// The gradients of half the mean squared error, by tensor.
function computeGradients(model, rank, iteration) {
  const weight = new Float32Array(INPUTS);
  const bias = new Float32Array(1);
  for (const x of drawPoints(rank, iteration)) {
    let error = model["regression/bias"][0] - 0.5;
    x.forEach((value, i) => (error += (model["regression/weight"][i] - truth(i)) * value));
    x.forEach((value, i) => (weight[i] += (error * value) / POINTS));
    bias[0] += error / POINTS;
  }
  return { "regression/weight": weight, "regression/bias": bias };
}

async function main([planFile, rank, iterations]) {
  const plan = JSON.parse(fs.readFileSync(planFile)).plans[0];
  const incarnation = (crypto.randomBytes(8).readBigUInt64LE() | 1n).toString();
  const model = {
    "regression/weight": new Float32Array(INPUTS),
    "regression/bias": new Float32Array(1),
  };
  const shards = plan.shards.map(
    ({ shard }) => new Shard(plan, shard, Number(rank), incarnation, model),
  );
  const starts = await Promise.all(shards.map((shard) => shard.connect(STARTUP_SECONDS)));
  if (Math.max(...starts) > Math.min(...starts) + 1) {
    throw new Error(`the shards do not belong together: they start at ${starts}`);
  }
  await Promise.all(shards.map((shard) => shard.pull()));
  for (let iteration = Math.min(...starts); iteration < Number(iterations); iteration++) {
    const gradients = computeGradients(model, Number(rank), iteration);
    await Promise.all(shards.map((shard) => shard.pushPull(iteration, gradients)));
  }
  await Promise.all(shards.map((shard) => shard.leave()));
  const farthest = Math.max(
    ...Array.from(model["regression/weight"], (value, i) => Math.abs(value - truth(i))),
    Math.abs(model["regression/bias"][0] - 0.5),
  );
  const off = farthest.toFixed(6);
  console.log(`after ${iterations} iterations no weight is off by more than ${off}`);
}

if (process.argv.length !== 5) {
  console.error("usage: node worker.js PLAN RANK ITERATIONS");
  process.exit(2);
}
main(process.argv.slice(2)).catch((error) => {
  console.error(`worker ${process.argv[3]}: ${error.message}`);
  process.exit(1);
});
