// Client libraries beside those of tests/http: what of them concerns text, against the real binary. Each is skipped where
// it is not installed.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { missing, Server } from '../http/server.mjs';

const load = (name) => import(name).catch(() => null);
const [agents, lcOpenAI, lcAnthropic, lcCore, lcMessages, lcTools, llama, llamaOpenAI, aiOpenAI, aiAnthropic, ai, OpenAI, zod] = await Promise.all([
  '@openai/agents', '@langchain/openai', '@langchain/anthropic', '@langchain/core/prompts', '@langchain/core/messages', '@langchain/core/tools',
  'llamaindex', '@llamaindex/openai', '@ai-sdk/openai', '@ai-sdk/anthropic', 'ai', 'openai', 'zod'].map(load));
const have = (...packages) => missing || (packages.every(Boolean) ? false : 'the packages are not installed: make test-clients');
const any = [agents, lcOpenAI, lcAnthropic, llama, aiOpenAI, aiAnthropic].some(Boolean);
const server = missing || !any ? null : await Server.start();
const base = server && `${server.url}/v1`;
process.env.OPENAI_API_KEY ??= 'none';

const QUESTION = 'What is 2 + 3?';
const weather = zod && { name: 'weather', description: 'The weather in a city.', parameters: zod.z.object({ city: zod.z.enum(['Rome', 'Paris']) }) }; // or the demo model's city has no end
const Sum = zod && zod.z.object({ a: zod.z.number().int(), b: zod.z.number().int(), text: zod.z.string().max(40) });

// ---- LangChain

const chatOpenAI = (more = {}) => new lcOpenAI.ChatOpenAI({ model: 'test', temperature: 0, maxTokens: 60, apiKey: 'none', configuration: { baseURL: base }, ...more });
const chatAnthropic = (more = {}) => new lcAnthropic.ChatAnthropic({ model: 'test', temperature: 0, maxTokens: 60, apiKey: 'none', anthropicApiUrl: server.url, ...more });

for (const [name, make, skip] of [['@langchain/openai', chatOpenAI, have(lcOpenAI, zod)],
                                  ['@langchain/openai over Responses', (more) => chatOpenAI({ useResponsesApi: true, ...more }), have(lcOpenAI, zod)],
                                  ['@langchain/anthropic', chatAnthropic, have(lcAnthropic, zod)]]) {
  test(`${name}: an answer, whole and streamed, with its usage`, { skip }, async () => {
    const whole = await make().invoke(QUESTION);
    assert.match(whole.text, /5/);
    assert.ok(whole.usage_metadata.input_tokens > 0 && whole.usage_metadata.output_tokens > 0);
    let text = '', usage;
    for await (const part of await make().stream(QUESTION)) {
      text += part.text;
      usage = part.usage_metadata ?? usage;
    }
    assert.equal(text, whole.text);
    assert.ok(usage.output_tokens > 0);
  });

  test(`${name}: a batch, and a conversation behind a system message`, { skip }, async () => {
    const all = await make().batch([QUESTION, 'What is 3 + 4?']);
    assert.ok(all.every((m) => m.text.length > 0));
    const m = await make().invoke([new lcMessages.SystemMessage('Be brief.'), new lcMessages.HumanMessage(QUESTION), new lcMessages.AIMessage('5'),
                                   new lcMessages.HumanMessage('What is 3 + 4?')]);
    assert.ok(m.text.length > 0);
  });

  test(`${name}: a call that must be made, and its result`, { skip }, async () => {
    const tool = lcTools.tool(async ({ city }) => `sunny in ${city}`, { name: weather.name, description: weather.description, schema: weather.parameters });
    const model = make();
    const bound = model.bindTools([tool], { tool_choice: name.includes('anthropic') ? { type: 'any' } : { type: 'function', function: { name: weather.name }, name: weather.name } });
    const messages = [new lcMessages.HumanMessage('What is the weather in Rome?')];
    const answer = await bound.invoke(messages);
    assert.equal(answer.tool_calls[0].name, 'weather');
    assert.equal(typeof answer.tool_calls[0].args.city, 'string');
    const result = await tool.invoke(answer.tool_calls[0]);
    const last = await model.bindTools([tool]).invoke([...messages, answer, result]);
    assert.ok(last.text.length > 0 || last.tool_calls.length > 0);
  });

  test(`${name}: structured output`, { skip }, async () => {
    const r = await make({ maxTokens: 200 }).withStructuredOutput(Sum, { name: 'sum' }).invoke('Add 2 and 3.');
    assert.ok(Number.isInteger(r.a) && Number.isInteger(r.b) && typeof r.text === 'string');
  });
}

test('@langchain/openai: log-probabilities, stop strings, embeddings', { skip: have(lcOpenAI) }, async () => {
  const m = await chatOpenAI({ logprobs: true, topLogprobs: 2 }).invoke(QUESTION);
  assert.equal(m.response_metadata.logprobs.content[0].top_logprobs.length, 2);
  const full = (await chatOpenAI().invoke('Tell me a story.')).text;
  const cut = (await chatOpenAI().invoke('Tell me a story.', { stop: [full.slice(5, 9)] })).text;
  assert.ok(full.startsWith(cut) && cut.length < full.length);
  const embeddings = new lcOpenAI.OpenAIEmbeddings({ model: 'test', apiKey: 'none', configuration: { baseURL: base } });
  const many = await embeddings.embedDocuments(Array.from({ length: 30 }, (_, i) => `text ${i}`));
  assert.equal(many.length, 30);
  assert.deepEqual(await embeddings.embedQuery('text 3'), many[3]);
});

test('@langchain/openai: text completions', { skip: have(lcOpenAI) }, async () => {
  const model = new lcOpenAI.OpenAI({ model: 'test', temperature: 0, maxTokens: 10, apiKey: 'none', configuration: { baseURL: base } });
  assert.ok((await model.invoke('Once upon a time')).length > 0);
});

// ---- OpenAI's agents

for (const [name, Model] of [['chat completions', agents?.OpenAIChatCompletionsModel], ['Responses', agents?.OpenAIResponsesModel]]) {
  const skip = have(agents, OpenAI, zod);
  const model = () => new Model(new OpenAI.default({ baseURL: base, apiKey: 'none' }), 'test');
  agents?.setTracingDisabled(true);

  test(`@openai/agents over ${name}: an answer, and a stream`, { skip }, async () => {
    const agent = new agents.Agent({ name: 'a', instructions: 'Be brief.', model: model(), modelSettings: { temperature: 0, maxTokens: 60 } });
    const r = await agents.run(agent, QUESTION);
    assert.ok(r.finalOutput.length > 0);
    const stream = await agents.run(agent, QUESTION, { stream: true });
    let text = '';
    for await (const part of stream.toTextStream()) text += part;
    await stream.completed;
    assert.equal(text, r.finalOutput);
    const next = await agents.run(agent, [...r.history, { role: 'user', content: 'What is 3 + 4?' }]);
    assert.ok(next.finalOutput.length > 0);
  });

  test(`@openai/agents over ${name}: a tool is called`, { skip }, async () => {
    let called = 0;
    const tool = agents.tool({ ...weather, execute: async ({ city }) => { called++; return `sunny in ${city}`; } });
    const agent = new agents.Agent({ name: 'a', instructions: 'Use the tool.', model: model(), tools: [tool], toolUseBehavior: 'run_llm_again',
                                     modelSettings: { temperature: 0, maxTokens: 80, toolChoice: 'required' }, resetToolChoice: true });
    await agents.run(agent, 'What is the weather in Rome?', { maxTurns: 4 }).catch((e) => { if (!/max turns/i.test(e.message)) throw e; });
    assert.ok(called > 0);
  });

  test(`@openai/agents over ${name}: output of a type`, { skip }, async () => {
    const agent = new agents.Agent({ name: 'a', instructions: 'Add.', model: model(), outputType: Sum, modelSettings: { temperature: 0, maxTokens: 300 } });
    const r = await agents.run(agent, 'Add 2 and 3.');
    assert.ok(Number.isInteger(r.finalOutput.a));
  });
}

// ---- Vercel's

for (const [name, make, skip] of [['@ai-sdk/openai over Responses', () => aiOpenAI.createOpenAI({ baseURL: base, apiKey: 'none' })('test'), have(aiOpenAI, ai, zod)],
                                  ['@ai-sdk/openai over chat completions', () => aiOpenAI.createOpenAI({ baseURL: base, apiKey: 'none' }).chat('test'), have(aiOpenAI, ai, zod)],
                                  ['@ai-sdk/anthropic', () => aiAnthropic.createAnthropic({ baseURL: base, apiKey: 'none' })('test'), have(aiAnthropic, ai, zod)]]) {
  test(`${name}: text, a stream, a call, an object`, { skip }, async () => {
    const shared = { model: make(), temperature: 0, maxOutputTokens: 120, maxRetries: 0 };
    const whole = await ai.generateText({ ...shared, prompt: QUESTION });
    assert.match(whole.text, /5/);
    assert.ok(whole.usage.inputTokens > 0 && whole.usage.outputTokens > 0);
    const stream = ai.streamText({ ...shared, prompt: QUESTION });
    let text = '';
    for await (const part of stream.textStream) text += part;
    assert.equal(text, whole.text);
    const tools = { weather: ai.tool({ description: weather.description, inputSchema: weather.parameters, execute: async ({ city }) => `sunny in ${city}` }) };
    const called = await ai.generateText({ ...shared, prompt: 'What is the weather in Rome?', tools, toolChoice: 'required' });
    assert.equal(called.toolCalls[0].toolName, 'weather');
    assert.equal(called.toolResults[0].output, `sunny in ${called.toolCalls[0].input.city}`);
    const { object } = await ai.generateObject({ ...shared, prompt: 'Add 2 and 3.', schema: Sum });
    assert.ok(Number.isInteger(object.a));
  });
}

test('@ai-sdk/openai: embeddings', { skip: have(aiOpenAI, ai) }, async () => {
  const model = aiOpenAI.createOpenAI({ baseURL: base, apiKey: 'none' }).textEmbeddingModel('test');
  const { embeddings, usage } = await ai.embedMany({ model, values: ['one', 'two', 'three'], maxRetries: 0 });
  assert.equal(embeddings.length, 3);
  assert.ok(usage.tokens >= 3);
});

// ---- LlamaIndex

test('@llamaindex/openai: chat, stream, call, embeddings', { skip: have(llama, llamaOpenAI) }, async () => {
  const llm = llamaOpenAI.openai({ model: 'test', temperature: 0, maxTokens: 60, apiKey: 'none', baseURL: base });
  const messages = [{ role: 'user', content: QUESTION }];
  const whole = await llm.chat({ messages });
  assert.match(whole.message.content, /5/);
  let text = '';
  for await (const part of await llm.chat({ messages, stream: true })) text += part.delta;
  assert.equal(text, whole.message.content);
  const embed = new llamaOpenAI.OpenAIEmbedding({ model: 'test', apiKey: 'none', baseURL: base });
  const [a, b] = await embed.getTextEmbeddings(['one', 'two']);
  assert.ok(a.length > 10 && a.length === b.length);
});

test('the server ends cleanly', async () => server?.stop());
