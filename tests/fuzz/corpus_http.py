#!/usr/bin/env python3
"""Writes the fixed corpus of fuzz_http and fuzz_wire: corpus_http.py FOLDER. A pause between pieces is \\xff\\xfe."""
import json
import os
import sys

PAUSE = b'\xff\xfe'


def post(path, body, head=b'', close=True):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (b'POST ' + path.encode() + b' HTTP/1.1\r\nHost: localhost\r\n' + (b'Connection: close\r\n' if close else b'') + head
            + b'Content-Length: ' + str(len(body)).encode() + b'\r\n\r\n' + body)


def get(path, head=b'', version=b'HTTP/1.1', method=b'GET'):
    return method + b' ' + path + b' ' + version + b'\r\nHost: localhost\r\n' + head + b'Connection: close\r\n\r\n'


def chunked(path, chunks, end=b'0\r\n\r\n'):
    return (b'POST ' + path + b' HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n'
            + b''.join(b'%x\r\n%s\r\n' % (len(c), c) for c in chunks) + end)


CHAT, COMP = '/v1/chat/completions', '/v1/completions'
user = [{'role': 'user', 'content': 'hi'}]
tool = {'type': 'function', 'function': {'name': 'f', 'parameters': {'type': 'object', 'properties': {'a': {'type': 'integer'}}}}}
whole = post(CHAT, {'messages': user, 'max_tokens': 5})

corpus = {
    'health': get(b'/health'),
    'slots': get(b'/slots') , 'props': get(b'/props'), 'metrics': get(b'/metrics'), 'model': get(b'/v1/models/m'),
    'dashboard': get(b'/'), 'file': get(b'/dashboard/app.js'), 'machine': get(b'/v1/sluice/machine'), 'experts': get(b'/v1/sluice/experts'),
    'head': get(b'/v1/models', method=b'HEAD'),
    'options': get(b'/v1/chat/completions', b'Origin: key\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: a\r\n', method=b'OPTIONS'),
    'http10': get(b'/health', version=b'HTTP/1.0'), 'http2': b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
    'chat': whole, 'pieces': PAUSE.join([whole[:3], whole[3:50], whole[50:100], whole[100:]]), 'cut': whole[:-10],
    'stream': post(CHAT, {'messages': user, 'stream': True, 'stream_options': {'include_usage': True}, 'logprobs': True, 'top_logprobs': 2}),
    'dry': post(COMP, {'prompt': [97, 98, 97, 98, 97], 'n': 2, 'dry_multiplier': 0.8, 'dry_base': 1.75, 'dry_allowed_length': 1, 'dry_penalty_last_n': -1, 'dry_sequence_breakers': ['\n', 'ab', 'cde'], 'samplers': ['penalties', 'dry', 'top_k', 'temperature']}),
    'several': post(COMP, {'prompt': ['a', [98, 99]], 'n': 3, 'stop': ['x', 'yz'], 'echo': True, 'logit_bias': {'97': -100}}),
    'responses': post('/v1/responses', {'input': 'hi', 'instructions': 'be', 'stream': True, 'max_output_tokens': 9}),
    'messages': post('/v1/messages', {'model': 'm', 'max_tokens': 9, 'messages': user, 'system': 's', 'stream': True}, b'anthropic-version: 2023-06-01\r\n'),
    'count_tokens': post('/v1/messages/count_tokens', {'model': 'm', 'messages': user}),
    'tools': post(CHAT, {'messages': user, 'tools': [tool], 'tool_choice': 'required', 'max_tokens': 20}),
    'schema': post(CHAT, {'messages': user, 'max_tokens': 9, 'response_format': {'type': 'json_schema', 'json_schema': {'name': 'x', 'strict': True, 'schema': {'type': 'integer'}}}}),
    'tokenize': post('/tokenize', {'content': 'a<|im_end|>', 'with_pieces': True}), 'detokenize': post('/detokenize', {'tokens': [97, 259]}),
    'template': post('/apply-template', {'messages': user}),
    'pipelined': post('/tokenize', {'content': 'a'}, close=False) + get(b'/nowhere').replace(b'Connection: close\r\n', b'') + whole,
    'chunked': chunked(b'/tokenize', [b'{"con', b'tent":', b'"a"}']), 'chunk_end': chunked(b'/tokenize', [b'{}'], b'0\r\nTrailer: x\r\n\r\n'),
    'chunk_huge': chunked(b'/tokenize', [], b'ffffffffffffffff\r\nx'), 'chunk_bad': chunked(b'/tokenize', [b'{}'], b'-5\r\nx\r\n0\r\n\r\n'),
    'both_lengths': b'POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n' + get(b'/health'),
    'two_lengths': post('/tokenize', b'{}', b'Content-Length: 0\r\n'), 'folded': post('/tokenize', b'{}', b'X-A: a\r\n b\r\n\tc\r\n'),
    'bare_lf': whole.replace(b'\r\n', b'\n'), 'nul': get(b'/hea\0lth%00', b'X: a\0b\r\n'), 'escapes': get(b'/%68ealth%zz%?a=%00&b=%'),
    'expect': post('/tokenize', b'{}', b'Expect: 100-continue\r\n'), 'expect_large': post('/tokenize', b'', b'Expect: 100-continue\r\n').replace(b'Length: 0', b'Length: 99999999'),
    'large': post('/tokenize', b'"' + b'a' * 70000 + b'"'), 'many_headers': get(b'/health', b'A: a\r\n' * 3000), 'deep': post(CHAT, b'[' * 3000),
    'keys': post(CHAT, {'messages': user}, b'Authorization: Bearer key\r\nx-api-key: k\r\nOrigin: key\r\n'),
    'absolute': b'GET http://localhost:1/health?a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n', 'absolute_10': b'GET http://127.0.0.1 HTTP/1.0\r\n\r\n',
    'length_blank': post('/tokenize', b'', b'').replace(b'Length: 0', b'Length: 2 \t') + b'{}', 'chunk_extension': b'POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: Chunked \r\n\r\n002 ;a="b"\r\n{}\r\n0\r\nT: t\r\n\r\n' + get(b'/health'),
    'chunk_bare_lf': b'POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\n{}\r\n0\r\n\r\n', 'chunk_bare_cr': b'POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2;a=\r\n\r\n{}\r\n0\r\n\r\n',
    'host': get(b'/health').replace(b'Host: localhost', b'Host: attacker.example:80'), 'origin': post('/tokenize', b'{}', b'Origin: http://attacker.example\r\nContent-Type: text/plain\r\n'),
    'get_body': get(b'/props', b'Content-Length: 5\r\n') + b'hello', 'method': get(b'/health', method=b'BREW'), 'tls': bytes.fromhex('16030100c8010000c40303') + bytes(range(64)),
}

for name, data in corpus.items():
    with open(os.path.join(sys.argv[1], name), 'wb') as f:
        f.write(data)
