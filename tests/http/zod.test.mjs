// The schemas that Zod 4 makes: each form is taken, and an answer that came to its end parses with the form it came from.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { missing, patience, Server } from './server.mjs';

const { z } = await import('zod/v4').catch(() => ({}));
const skip = missing || (z?.toJSONSchema ? false : 'zod 4 is not installed: run npm ci in tests/http');
const server = skip ? null : await Server.start();

const forms = skip ? {} : {
  string: z.string(), 'string of a length': z.string().min(2).max(5), 'string of one length': z.string().length(3), regex: z.string().regex(/^[A-Z]{2}\d{1,3}$/), startsWith: z.string().startsWith('ab').max(9),
  endsWith: z.string().endsWith('z').max(9), includes: z.string().includes('mid').max(9), uppercase: z.string().uppercase().max(9), lowercase: z.string().lowercase().max(9),
  email: z.email(), uuid: z.uuid(), uuidv4: z.uuidv4(), uuidv7: z.uuidv7(), guid: z.guid(), url: z.url(), base64: z.base64(), base64url: z.base64url(), nanoid: z.nanoid(), cuid: z.cuid(), cuid2: z.cuid2(), ulid: z.ulid(), xid: z.xid(), ksuid: z.ksuid(),
  ipv4: z.ipv4(), ipv6: z.ipv6(), cidrv4: z.cidrv4(), cidrv6: z.cidrv6(), e164: z.e164(), jwt: z.jwt(), date: z.iso.date(), time: z.iso.time(), datetime: z.iso.datetime(), 'datetime with an offset': z.iso.datetime({ offset: true, local: true }), duration: z.iso.duration(),
  number: z.number(), int: z.int(), int32: z.int32(), uint32: z.uint32(), float32: z.float32(), float64: z.float64(), positive: z.number().positive(), multipleOf: z.number().multipleOf(5), step: z.number().multipleOf(0.5), between: z.number().min(1).max(10),
  boolean: z.boolean(), null: z.null(), literal: z.literal('x'), literals: z.literal(['a', 1, null]), enum: z.enum(['a', 'b']), unknown: z.unknown(), any: z.any(), never: z.object({ a: z.never().optional() }),
  array: z.array(z.string()), nonempty: z.array(z.int()).nonempty(), 'array of a length': z.array(z.int()).min(1).max(3), tuple: z.tuple([z.string(), z.int()]), 'tuple with a rest': z.tuple([z.string()], z.int()),
  object: z.object({ a: z.string(), b: z.int().optional() }), strictObject: z.strictObject({ a: z.string() }), looseObject: z.looseObject({ a: z.string() }), catchall: z.object({ a: z.string() }).catchall(z.int()),
  record: z.record(z.string(), z.int()), 'record of an enum': z.record(z.enum(['a', 'b']), z.int()), 'record of a pattern': z.record(z.string().regex(/^x/), z.int()), partialRecord: z.partialRecord(z.enum(['a', 'b']), z.int()),
  union: z.union([z.string(), z.int()]), discriminatedUnion: z.discriminatedUnion('k', [z.object({ k: z.literal('a'), x: z.int() }), z.object({ k: z.literal('b') })]), intersection: z.intersection(z.object({ a: z.string() }), z.object({ b: z.int() })),
  nullable: z.string().nullable(), optional: z.object({ a: z.string().optional() }), default: z.object({ a: z.string().default('q') }), readonly: z.array(z.int()).readonly(), templateLiteral: z.templateLiteral(['a-', z.number(), z.enum(['px', 'em'])]), json: z.json(),
};

for (const [name, form] of Object.entries(forms))
  test(`takes ${name}`, { skip }, async () => {
    const schema = z.toJSONSchema(form);
    for (const strict of [false, true]) {
      const r = await server.post('/v1/chat/completions', { messages: [{ role: 'user', content: 'Answer.' }], max_tokens: patience > 1 ? 20 : 80, temperature: 1, seed: 2, response_format: { type: 'json_schema', json_schema: { name: 'answer', strict, schema } } });
      const body = await r.json();
      assert.equal(r.status, 200, JSON.stringify(body));
      if (body.choices[0].finish_reason !== 'stop') continue;
      const { content } = body.choices[0].message;
      assert.ok(form.safeParse(JSON.parse(content)).success, `${content} ${JSON.stringify(schema)}`);
    }
  });

// The two that docs/STRUCTURED.md names are refused, for the reason given there; the others are counted there.
for (const [name, form, reason] of skip ? [] : [['emoji', z.emoji(), /pattern: .*\\\\p/], ['hostname', z.hostname(), /pattern: .*too complex/]])
  test(`refuses ${name} and says why`, { skip }, async () => {
    for (const strict of [false, true]) {
      const r = await server.post('/v1/chat/completions', { messages: [{ role: 'user', content: 'Answer.' }], max_tokens: 1, response_format: { type: 'json_schema', json_schema: { name: 'answer', strict, schema: z.toJSONSchema(form) } } });
      const text = await r.text();
      assert.equal(r.status, 400, text);
      assert.match(text, reason);
    }
  });

test('docs/STRUCTURED.md counts the forms', { skip }, () => {
  const page = readFileSync(new URL('../../docs/STRUCTURED.md', import.meta.url), 'utf8');
  const [, taken, all] = /(\d+)\s+of\s+(\d+)\s+forms\s+of\s+Zod\s+4/.exec(page);
  assert.deepEqual([Number(taken), Number(all)], [Object.keys(forms).length, Object.keys(forms).length + 2]);
});

test('ends cleanly', { skip }, async () => server.stop());
