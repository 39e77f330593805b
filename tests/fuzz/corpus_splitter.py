#!/usr/bin/env python3
"""Writes the fixed corpus of fuzz_splitter: a call in each family's form, read in several ways, cut
off, broken, and inputs that were trouble.

usage: corpus_splitter.py FOLDER"""
import os
import sys

out = sys.argv[1]
os.makedirs(out, exist_ok=True)
BAR, LOW = '｜', '▁'
ds = lambda w: f'<{BAR}{w}{BAR}>'
A = '{"s": "x", "n": 2}'
names = ['generic','hermes','qwen3-coder','seed-oss','llama3','mistral','mistral-args','deepseek-v3','deepseek-v3.1','deepseek-v3.2','deepseek-v4','glm','minimax','kimi-k2','granite','apertus','harmony']
dsml = lambda sec: f'a <{BAR}DSML{BAR}{sec}>\n<{BAR}DSML{BAR}invoke name="f">\n<{BAR}DSML{BAR}parameter name="s" string="true">x</{BAR}DSML{BAR}parameter>\n<{BAR}DSML{BAR}parameter name="n" string="false">2</{BAR}DSML{BAR}parameter>\n</{BAR}DSML{BAR}invoke>\n</{BAR}DSML{BAR}{sec}>'
texts = {
 'generic': '<tool_call>{"arguments": {"a": [1, true, null]}, "x": 3, "name": "g"}</tool_call>',
 'hermes': f'<think>r</think>hm\n<tool_call>\n{{"name": "f", "arguments": {A}}}\n</tool_call>\n<tool_call>{{"name": "g", "arguments": "{{}}"}}</tool_call> end',
 'qwen3-coder': '<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>\n<parameter=b>\nTrue\n</parameter>\n<parameter=r>\n[1]\n</parameter>\n</function>\n</tool_call>',
 'seed-oss': '<seed:think>r</seed:think><seed:tool_call>\n<function=f>\n<parameter=s>x</parameter>\n</function>\n</seed:tool_call>',
 'llama3': '<|python_tag|>{"name": "f", "parameters": {}}; {"name": "g"}',
 'mistral': f'[TOOL_CALLS] [{{"name": "f", "arguments": {A}, "id": "123456789"}}, {{"name": "g"}}]',
 'mistral-args': '[THINK]r[/THINK][TOOL_CALLS]f[ARGS]{"s": "\\u00e9"}[TOOL_CALLS]g[CALL_ID]123456789[ARGS]{}',
 'deepseek-v3': ds(f'tool{LOW}calls{LOW}begin')+ds(f'tool{LOW}call{LOW}begin')+'function'+ds(f'tool{LOW}sep')+'f\n```json\n'+A+'\n```'+ds(f'tool{LOW}call{LOW}end')+ds(f'tool{LOW}calls{LOW}end'),
 'deepseek-v3.1': ds(f'tool{LOW}calls{LOW}begin')+ds(f'tool{LOW}call{LOW}begin')+'f'+ds(f'tool{LOW}sep')+A+ds(f'tool{LOW}call{LOW}end')+ds(f'tool{LOW}calls{LOW}end'),
 'deepseek-v3.2': dsml('function_calls'), 'deepseek-v4': dsml('tool_calls'),
 'glm': '<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>x</arg_value>\n<arg_key>n</arg_key>\n<arg_value>1e5</arg_value>\n</tool_call>',
 'minimax': '<minimax:tool_call>\n<invoke name="f">\n<parameter name="s">x</parameter>\n</invoke>\n<invoke name="g">\n</invoke>\n</minimax:tool_call>',
 'kimi-k2': '<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>'+A+'<|tool_call_end|><|tool_calls_section_end|>',
 'granite': '<|tool_call|>[{"name": "g", "arguments": {}}]',
 'apertus': '<|inner_prefix|>r<|inner_suffix|><|tools_prefix|>[{"f": '+A+'}, {"g": {}}]<|tools_suffix|>',
 'harmony': '<|channel|>analysis<|message|>r<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>'+A+'<|call|>',
}
n = 0
for i, name in enumerate(names):
    t = texts[name].encode()
    for how, body in [(3, t), (3 | 8 | 32, t), (1 | 16 | 64, t[:len(t) * 2 // 3]), (1 | 8, t.replace(b'"', b"'", 1)), (0, t)]:
        open(f'{out}/{n:03}', 'wb').write(bytes([i, how]) + body)
        n += 1
# A zero byte is no name.
open(f'{out}/{n:03}', 'wb').write(bytes([6, 9]) + b'[TOOL_CALLS]\0[ARGS]{}')
