// A real Tidegate for the tests: TIDEGATE names the program, or target/debug/tidegate is used.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { setTimeout as sleep } from "node:timers/promises";

const RULES = `domain: shop
descriptors:
  - key: user
    rate_limit: {name: per-user, algorithm: token_bucket, unit: hour, requests_per_unit: 2}
  - key: fast
    rate_limit: {name: fast, algorithm: token_bucket, unit: second, requests_per_unit: 10}
  - key: job
    rate_limit: {name: jobs, algorithm: concurrency, requests_per_unit: 1, time_to_live: 60s}
`;

export async function freePort() {
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address();
  probe.close();
  await once(probe, "close");
  return port;
}

export async function serve() {
  const program = process.env.TIDEGATE ?? fileURLToPath(new URL("../../target/debug/tidegate", import.meta.url));
  const folder = await mkdtemp(join(tmpdir(), "tidegate-"));
  await writeFile(join(folder, "rules.yaml"), RULES);
  const url = `http://127.0.0.1:${await freePort()}`;
  const settings = [
    `rules.paths=${join(folder, "rules.yaml")}`,
    `http.listen=${url.slice(7)}`,
    "grpc.listen=127.0.0.1:0",
    "debug.listen=127.0.0.1:0",
  ];
  const child = spawn(program, ["serve", ...settings.flatMap((setting) => ["--set", setting])], { stdio: "ignore" });
  const failed = once(child, "error").then(([error]) => {
    throw new Error(`no Tidegate: ${error.message} (build it with \`cargo build -p tidegate-app\`)`);
  });
  const ready = async () => {
    for (let attempt = 0; attempt < 600; attempt += 1) {
      const answer = await fetch(`${url}/readyz`).catch(() => undefined);
      if (answer?.ok) return;
      await sleep(50);
    }
    throw new Error("Tidegate does not become ready");
  };
  await Promise.race([failed, ready()]);
  failed.catch(() => {});
  const stop = async () => {
    child.kill();
    await once(child, "exit");
    await rm(folder, { recursive: true });
  };
  return { url, stop };
}
