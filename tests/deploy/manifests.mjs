// What Kubernetes' published schemas say of manifests: wrong types, what is required and missing, and fields that there are not.
//
// stdin: a JSON array of documents. stdout: a JSON array of faults. Exit code 77: the schemas (npm's kubernetes-models) are not here.
import { readFileSync } from "node:fs";

const CORE = "IoK8sApiCoreV1", APPS = "IoK8sApiAppsV1";
const OF_KIND = { "apps/v1 StatefulSet": APPS + "StatefulSet", "v1 Service": CORE + "Service" };
const PODS = CORE + "PodTemplateSpec";

async function schema(name) {
  try {
    return (await import(`kubernetes-models/_schemas/${name}`)).validate;
  } catch (e) {
    if (e.code !== "ERR_MODULE_NOT_FOUND") throw e;
    process.stderr.write(`${e.message}\n`);
    process.exit(77);
  }
}

// The validators are code that looks at each field that the schema has: what they never look at, no schema has.
function watched(value, path, unseen) {
  if (value === null || typeof value !== "object") return value;
  const inner = new Map(), target = Array.isArray(value) ? [] : {};
  for (const [key, v] of Object.entries(value)) {
    if (!Array.isArray(value)) unseen.add(`${path}/${key}`);
    inner.set(key, watched(v, `${path}/${key}`, unseen));
    target[key] = inner.get(key);
  }
  return new Proxy(target, {
    get(of, key) {
      if (typeof key === "string") unseen.delete(`${path}/${key}`);
      return Reflect.get(of, key);
    },
  });
}

async function faults(document, name, at) {
  const validate = await schema(name), unseen = new Set(), found = [];
  if (!validate(watched(document, "", unseen)))
    found.push(...validate.errors.map((e) => `${at}${e.instancePath}: ${e.keyword}: ${JSON.stringify(e.params)}`));
  // Of a field that is not known nothing below it is looked at, either.
  for (const path of unseen)
    if (![...unseen].some((other) => path.startsWith(other + "/"))) found.push(`${at}${path}: there is no such field`);
  return found;
}

const found = [];
for (const d of JSON.parse(readFileSync(0, "utf8"))) {
  const kind = `${d.apiVersion} ${d.kind}`, at = `${d.kind} ${d.metadata?.name}: `;
  if (d.kind === "LeaderWorkerSet") {
    // Its own fields are check.py's; its pods are Kubernetes'.
    const t = d.spec.leaderWorkerTemplate;
    found.push(...(await faults(t.leaderTemplate, PODS, at)), ...(await faults(t.workerTemplate, PODS, at)));
  } else if (OF_KIND[kind]) {
    found.push(...(await faults(d, OF_KIND[kind], at)));
  } else {
    found.push(`${at}no schema is known for ${kind}`);
  }
}
process.stdout.write(JSON.stringify(found));
