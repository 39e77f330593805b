// The Vercel AI SDK with its OpenAI-compatible provider against the real binary.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { missing, patience, Server } from './server.mjs';

globalThis.AI_SDK_LOG_WARNINGS = false;
const ai = await import('ai').catch(() => null);
const { createOpenAICompatible } = await import('@ai-sdk/openai-compatible').catch(() => ({}));
const skip = missing || (ai && createOpenAICompatible ? false : 'the ai packages are not installed: run npm ci in tests/http');
const it = (name, run) => test(name, { skip }, run);
const server = skip ? null : await Server.start();
const provider = skip ? null : createOpenAICompatible({ name: 'sluice', baseURL: `${server.url}/v1`, includeUsage: true, supportsStructuredOutputs: true });
const ask = skip ? null : { model: provider('test'), prompt: 'What is 2 + 3?', temperature: 0, maxOutputTokens: 40, maxRetries: 0 };

it('generates text', async () => {
  const r = await ai.generateText(ask);
  assert.match(r.text, /5/);
  assert.equal(r.finishReason, 'stop');
  assert.ok(r.usage.inputTokens > 0 && r.usage.outputTokens > 0);
});

it('streams text', async () => {
  const r = ai.streamText({ ...ask, onError: ({ error }) => { throw error; } });
  let text = '', n = 0;
  for await (const t of r.textStream) { text += t; n++; }
  assert.equal(text, (await ai.generateText(ask)).text);
  assert.ok(n > 1);
  assert.equal(await r.finishReason, 'stop');
  assert.ok((await r.usage).outputTokens > 0);
});

it('generates what keeps to a schema', async () => {
  const schema = ai.jsonSchema({ type: 'object', properties: { sum: { type: 'integer', minimum: 0, maximum: 99 } }, required: ['sum'], additionalProperties: false });
  const r = await ai.generateText({ ...ask, output: ai.Output.object({ schema }) });
  assert.equal(typeof r.output.sum, 'number');
});

it('runs a tool and goes on with what it gave', async () => {
  const asked = [];
  const inputSchema = ai.jsonSchema({ type: 'object', properties: { days: { type: 'integer', minimum: 1, maximum: 9 } }, required: ['days'], additionalProperties: false });
  const tools = { weather: ai.tool({ description: 'Gives the weather.', inputSchema, execute: async (input) => { asked.push(input); return 'sunny'; } }) };
  const r = await ai.generateText({ ...ask, prompt: 'What is the weather?', maxOutputTokens: 200, tools, stopWhen: ai.stepCountIs(2),
                                    prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber ? 'none' : { type: 'tool', toolName: 'weather' } }) });
  assert.equal(r.steps.length, 2);
  assert.equal(r.steps[0].finishReason, 'tool-calls');
  assert.ok(asked.length >= 1 && asked.every((a) => a.days >= 1 && a.days <= 9), JSON.stringify(asked));
  assert.equal(r.steps[0].toolResults[0].output, 'sunny');
  assert.equal(r.steps[1].toolCalls.length, 0);
  const stream = ai.streamText({ ...ask, prompt: 'What is the weather?', maxOutputTokens: 200, tools, toolChoice: 'required', onError: ({ error }) => { throw error; } });
  const calls = await stream.toolCalls;
  assert.ok(calls.length >= 1 && calls.every((c) => c.toolName === 'weather' && c.input.days >= 1 && c.input.days <= 9));
});

it('hands errors on', async () => {
  await assert.rejects(ai.generateText({ ...ask, model: provider('gpt-9') }), (e) => ai.APICallError.isInstance(e) && e.statusCode === 404);
  await assert.rejects(ai.generateText({ ...ask, temperature: 5 }), (e) => ai.APICallError.isInstance(e) && e.statusCode === 400 && /temperature/.test(e.message));
});

it('frees the work of a stream that is aborted', async () => {
  const abort = new AbortController();
  const r = ai.streamText({ ...ask, prompt: 'Tell me a story.', maxOutputTokens: 900, abortSignal: abort.signal, onError: () => {} });
  let n = 0;
  for await (const _ of r.textStream) if (++n === 3) abort.abort();
  await server.until('idle', 1000 * patience, async () => (await server.metric('sluice_sessions_running')) === 0);
});

it('ends cleanly', () => server.stop());
