#!/usr/bin/env python3
"""Asks a server the 500 held-out questions and counts the exact answers.

    python3 demo/eval.py --url http://127.0.0.1:8080

Speaks OpenAI's /v1/chat/completions, temperature 0. Needs only Python. Exit status: 0 if at least
95 % of the answers are exact, 1 if fewer are, 2 if the server could not be asked.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import sys
import time
import urllib.error
import urllib.request

PASS_SHARE = 0.95
RETRIES = 5
HERE = os.path.dirname(os.path.abspath(__file__))


class ServerError(Exception):
    pass


def fetch(url, body=None, timeout_s=120.0):
    """The JSON that url answers; body, if given, is posted. A busy server is asked again."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    for attempt in range(RETRIES + 1):
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            text = error.read(2000).decode(errors="replace").strip()
            if error.code in (429, 503) and attempt < RETRIES:
                time.sleep(0.2 * 2 ** attempt)
                continue
            raise ServerError(f"{url} answered {error.code}: {text}") from error
        except (OSError, ValueError) as error:
            raise ServerError(f"{url}: {error}") from error


def ask(base, model, item, timeout_s):
    answer = fetch(base + "/v1/chat/completions", {
        "model": model, "messages": item["messages"], "temperature": 0, "max_tokens": 320,
    }, timeout_s)
    try:
        content = answer["choices"][0]["message"]["content"]
        tokens = answer.get("usage", {}).get("completion_tokens", 0)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ServerError(f"not a chat completion: {json.dumps(answer)[:300]}") from error
    return content, tokens


def read_questions(path):
    with open(path, encoding="utf-8") as f:
        items = [json.loads(line) for line in f if line.strip()]
    if not items:
        raise ValueError(f"{path} holds no questions")
    return items


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8080",
                        help="where the server is, without /v1 (default: %(default)s)")
    parser.add_argument("--model", help="default: the first one the server lists")
    parser.add_argument("--questions", default=os.path.join(HERE, "eval_set.jsonl"))
    parser.add_argument("--limit", type=int, metavar="N",
                        help="ask N of the questions, evenly spread")
    parser.add_argument("--jobs", type=int, default=4, metavar="N",
                        help="questions in flight at a time (default: %(default)s)")
    parser.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS",
                        help="for one answer (default: %(default)s)")
    parser.add_argument("--show", type=int, default=10, metavar="N",
                        help="wrong answers to print (default: %(default)s)")
    args = parser.parse_args()
    if args.jobs < 1 or (args.limit is not None and args.limit < 1):
        parser.error("--jobs and --limit must be at least 1")
    base = args.url.rstrip("/").removesuffix("/v1")

    try:
        items = read_questions(args.questions)
        if args.limit and args.limit < len(items):
            items = [items[i * len(items) // args.limit] for i in range(args.limit)]
        model = args.model or fetch(base + "/v1/models", None, args.timeout)["data"][0]["id"]
    except (OSError, ValueError, KeyError, IndexError, TypeError, ServerError) as error:
        print(f"eval: {error}\nIs the server running, and is --url right?", file=sys.stderr)
        return 2

    right, total, wrong, tokens = collections.Counter(), collections.Counter(), [], 0
    began = time.monotonic()
    pool = concurrent.futures.ThreadPoolExecutor(args.jobs)
    try:
        answers = pool.map(lambda item: ask(base, model, item, args.timeout), items)
        for done, (item, (got, n)) in enumerate(zip(items, answers), 1):
            total[item["category"]] += 1
            tokens += n
            if got == item["answer"]:
                right[item["category"]] += 1
            else:
                wrong.append((item, got))
            if sys.stderr.isatty() and (done % 10 == 0 or done == len(items)):
                end = "\n" if done == len(items) else ""
                print(f"\r{done}/{len(items)} asked, {len(wrong)} wrong", end=end, file=sys.stderr,
                      flush=True)
    except ServerError as error:
        print(f"eval: {error}", file=sys.stderr)
        return 2
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    elapsed_s = time.monotonic() - began

    for item, got in wrong[:args.show]:
        print(f"wrong: no. {item['id']} ({item['category']}): {item['messages'][-1]['content']!r}\n"
              f"   expected {item['answer']!r}\n   got      {got!r}")
    if len(wrong) > args.show:
        print(f"... and {len(wrong) - args.show} more")
    print(f"\n{'category':<16} {'exact':>5} {'asked':>5}")
    for category, n in total.items():
        print(f"{category:<16} {right[category]:>5} {n:>5}  {100 * right[category] / n:5.1f} %")
    share = sum(right.values()) / len(items)
    print(f"{'all':<16} {sum(right.values()):>5} {len(items):>5}  {100 * share:5.1f} %   "
          f"{elapsed_s:.1f} s, {tokens} tokens")
    if share < PASS_SHARE:
        print(f"FAILED: fewer than {100 * PASS_SHARE:.0f} % exact")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
