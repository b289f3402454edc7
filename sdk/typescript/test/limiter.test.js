import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, describe, test } from "node:test";

import { Limiter, RefusedError } from "../src/index.js";
import { freePort, serve } from "../real-server.js";

describe("against the service", () => {
  let server;
  before(async () => {
    server = await serve();
  });
  after(() => server.stop());
  const limiter = (options) => new Limiter({ url: server.url, domain: "shop", timeoutMs: 5_000, ...options });

  test("admits until the limit and then says how long to wait", async () => {
    const l = limiter();
    for (const remaining of [1, 0]) {
      const got = await l.check({ user: "ada" });
      assert.deepEqual(got, { kind: "admitted", remaining, delayMs: 0, permit: undefined, soft: false });
    }
    const refused = await l.check({ user: "ada" });
    assert.equal(refused.kind, "refused");
    assert.equal(refused.limit, "per-user");
    assert.ok(refused.retryAfterMs > 0 && refused.retryAfterMs <= 1_800_000);
  });

  test("a refusal is remembered until its retry time", async () => {
    let now = 0;
    let calls = 0;
    const counting = (...request) => ((calls += 1), fetch(...request));
    const l = limiter({ now: () => now, fetch: counting });
    for (let call = 0; call < 20; call += 1) await l.check({ user: "dora" });
    assert.equal(calls, 3);
    now += 1_800_000;
    await l.check({ user: "dora" });
    assert.equal(calls, 4);
  });

  test("a cost that never fits has no retry time", async () => {
    const got = await limiter().check({ user: "eve" }, { cost: 3 });
    assert.deepEqual(got, { kind: "refused", retryAfterMs: undefined, limit: "per-user" });
  });

  test("peek charges nothing and refund gives back", async () => {
    const l = limiter();
    await l.check({ user: "bob" });
    for (let look = 0; look < 3; look += 1) assert.equal((await l.peek({ user: "bob" })).remaining, 1);
    assert.equal(await l.refund({ user: "bob" }), true);
    assert.equal((await l.check({ user: "bob" })).remaining, 1);
  });

  test("a permit is held while its work runs", async () => {
    const l = limiter();
    await l.withPermit({ job: "report" }, async () => {
      await assert.rejects(limiter().withPermit({ job: "report" }, () => assert.fail("taken")), RefusedError);
    });
    await assert.rejects(
      l.withPermit({ job: "report" }, () => {
        throw new RangeError("broken");
      }),
      RangeError,
    );
    assert.equal(await l.withPermit({ job: "report" }, () => 7), 7);
  });

  test("a batch is decided in order", async () => {
    const got = await limiter().checkBatch([{ user: "cy" }, [{ user: "cy" }, { fast: "cy" }], { user: "cy" }]);
    assert.deepEqual(
      got.map((result) => result.kind),
      ["admitted", "admitted", "refused"],
    );
  });
});

describe("against failures", () => {
  async function misbehave(status, body) {
    let calls = 0;
    const server = createServer((_, response) => {
      calls += 1;
      response.writeHead(status).end(body);
    }).listen(0, "127.0.0.1");
    await new Promise((resolve) => server.once("listening", resolve));
    after(() => server.close());
    return { url: `http://127.0.0.1:${server.address().port}`, calls: () => calls };
  }

  test("garbage and errors are undecided", async () => {
    for (const [status, body] of [[200, "garbage"], [200, "[]"], [200, "{}"], [503, "{}"], [500, ""], [401, "{}"]]) {
      const { url } = await misbehave(status, body);
      const l = new Limiter({ url, domain: "shop", timeoutMs: 5_000 });
      const got = await l.check({ user: "ada" });
      assert.equal(got.kind, "undecided", `${status} ${body}`);
      assert.equal(got.allowed, true);
      assert.equal((await l.checkBatch([{ user: "ada" }]))[0].kind, "undecided");
    }
  });

  test("a service that is gone is undecided as the settings say", async () => {
    const url = `http://127.0.0.1:${await freePort()}`;
    const l = new Limiter({ url, domain: "shop", onError: "deny" });
    assert.equal((await l.check({ user: "ada" })).allowed, false);
    await assert.rejects(l.withPermit({ user: "ada" }, () => assert.fail("denied")), RefusedError);
  });

  test("a failing service is asked once a second", async () => {
    const { url, calls } = await misbehave(503, "{}");
    let now = 0;
    const l = new Limiter({ url, domain: "shop", timeoutMs: 5_000, now: () => now });
    for (const expected of [5, 6]) {
      for (let call = 0; call < 50; call += 1) await l.check({ user: "ada" });
      assert.equal(calls(), expected);
      now += 1_000;
    }
  });

  test("bad options are errors at once", () => {
    assert.throws(() => new Limiter({ url: "localhost:8080", domain: "shop" }), TypeError);
    assert.rejects(new Limiter({ domain: "shop" }).check([]), TypeError);
  });
});
