// Paced calls to a real Tidegate, whose checks carry the fields of a limit of ten a second.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, describe, test } from "node:test";

import { HeldError, pacedFetch } from "../src/index.js";
import { serve } from "../real-server.js";

describe("against the service", () => {
  let server;
  before(async () => {
    server = await serve();
  });
  after(() => server.stop());

  async function refusals(send, user) {
    const body = JSON.stringify({ domain: "shop", descriptors: [{ entries: [{ key: "fast", value: user }] }] });
    const headers = { "content-type": "application/json" };
    const statuses = [];
    const work = async () => {
      for (let call = 0; call < 3; call += 1) {
        const answer = await send(`${server.url}/v1/check`, { method: "POST", headers, body });
        await answer.text();
        statuses.push(answer.status);
      }
    };
    await Promise.all(Array.from({ length: 10 }, work));
    return statuses.filter((status) => status === 429).length;
  }

  test("paced calls are not refused", async () => {
    const without = await refusals(fetch, "plain");
    const paced = await refusals(pacedFetch(), "paced");
    console.log(`refused of 30: ${without} without pacedFetch, ${paced} with it`);
    assert.ok(without > 10, `${without}`);
    // A busy machine delays calls past the edge of a window, so that a few are refused.
    assert.ok(paced < without / 2, `${paced}`);
  });
});

describe("against a scripted service", () => {
  async function script(answer) {
    const calls = [];
    const server = createServer(async (request, response) => {
      let body = "";
      for await (const chunk of request) body += chunk;
      calls.push(body);
      answer(response, calls.length);
    }).listen(0, "127.0.0.1");
    await new Promise((resolve) => server.once("listening", resolve));
    after(() => server.close());
    return { url: `http://127.0.0.1:${server.address().port}/`, calls };
  }

  test("a target that asked to wait is closed", async () => {
    const { url, calls } = await script((response) => response.writeHead(429, { "retry-after": "3600" }).end());
    const paced = pacedFetch({ waitMaxMs: 1_000 });
    assert.equal((await paced(url)).status, 429);
    await assert.rejects(paced(url), (error) => error instanceof HeldError && error.retryAfterMs > 3_590_000);
    assert.equal(calls.length, 1);
  });

  test("a failed call is repeated with its body, if that is safe", async () => {
    const { url, calls } = await script((response, call) => response.writeHead(call % 2 === 1 ? 502 : 200).end());
    const paced = pacedFetch();
    assert.equal((await paced(url, { method: "PUT", body: "order" })).status, 200);
    assert.deepEqual(calls, ["order", "order"]);
    assert.equal((await paced(url, { method: "POST", body: "order" })).status, 502);
    assert.equal(calls.length, 3);
  });

  test("waiting ends with the signal", async () => {
    const { url } = await script((response) => response.writeHead(429, { "retry-after": "30" }).end());
    const paced = pacedFetch({ attemptsMax: 1 });
    await paced(url);
    await assert.rejects(paced(url, { signal: AbortSignal.timeout(20) }), { name: "TimeoutError" });
  });
});
