#!/usr/bin/env python3
"""Makes the chats the demo model learns from, and the held-out questions it is judged by.

    python3 demo/make_data.py eval > demo/eval_set.jsonl      the 500 held-out questions
    python3 demo/make_data.py sample [--count N]              training chats, to look at

Deterministic from the seed. A question whose key hashes into one part of twenty is held out: the
training generator throws such questions away and the evaluation takes no others.
"""
import argparse
import json
import random
import re
import sys
import zlib

import facts
import talk
import tasks
from tasks import Question

SEED = 20261

# Generator, share of the training questions, questions in the evaluation set.
CATEGORIES = (
    ("addition", tasks.addition, 11, 50),
    ("subtraction", tasks.subtraction, 11, 45),
    ("multiplication", tasks.multiplication, 11, 45),
    ("division", tasks.division, 6, 30),
    ("word problems", tasks.problem, 6, 30),
    ("ordering", tasks.ordering, 10, 55),
    ("counting", tasks.counting, 6, 35),
    ("letters", tasks.letters, 6, 30),
    ("units", tasks.units, 5, 35),
    ("calendar", tasks.calendar, 8, 45),
    ("facts", talk.fact, 14, 70),
    ("small talk", talk.small_talk, 2, 0),
    ("echo", talk.echo, 2, 0),
    ("story", talk.story, 6, 0),
    ("poem", talk.poem, 1, 0),
)
CONVERSATIONS = 30

PLAIN_SYSTEM = (
    "You are a helpful assistant.", "You are Sluice, a small and friendly assistant.",
    "You are a helpful assistant. Answer the user's questions.", "Be helpful and polite.",
    "You are the demo model of Sluice.",
)
BRIEF_SYSTEM = (
    "Answer briefly.", "You are a helpful assistant. Answer briefly.", "Give short answers only.",
    "Answer with as few words as possible.", "Be brief.",
)


def normalise(text):
    text = re.sub(r"\s+", " ", text.lower()).strip()
    return text.removeprefix("please ").rstrip(" .?!:")


def key_of(question):
    return question.key or normalise(question.text)


def held_out(key):
    # "talk" and "story" are not keys of single questions: nothing of theirs is held out.
    return key not in ("talk", "story") and zlib.crc32(key.encode()) % 20 == 0


def draw(rng, make, from_held_out=False):
    while True:
        question = make(rng)
        if held_out(key_of(question)) == from_held_out:
            return question


def noisy(rng, text):
    """The same question as people type it; the right answer stays the same."""
    chance = rng.random()
    if chance < 0.10:
        return text.lower()
    if chance < 0.20:
        return text.rstrip(".?")
    if chance < 0.23:
        return text.rstrip(".?").lower()
    if chance < 0.27 and text.endswith("."):
        return "Please " + text[0].lower() + text[1:]
    if chance < 0.28:
        return text + " "
    return text


_MAKERS = [make for _, make, _, _ in CATEGORIES]
_SHARES = [share for _, _, share, _ in CATEGORIES]


def any_question(rng):
    return draw(rng, rng.choices(_MAKERS, _SHARES)[0])


def _arithmetic_chain(rng):
    """A sum, then changes of its result: 'Add 5 to that.'"""
    first = draw(rng, tasks.addition)
    out, value = [first], int(first.brief)
    for _ in range(rng.randint(1, 3)):
        n = rng.randrange(1, 100)
        if rng.random() < 0.55 or value < n:
            text = rng.choice(("Add {} to that.", "And plus {}?", "Now add {}.", "Plus {}?"))
            question = Question(text.format(n), f"{value} + {n} = {value + n}", str(value + n),
                                f"add {min(value, n)} {max(value, n)}")
        else:
            text = rng.choice(("Subtract {} from that.", "And minus {}?", "Now take away {}.",
                               "Minus {}?"))
            question = Question(text.format(n), f"{value} - {n} = {value - n}", str(value - n),
                                f"sub {value} {n}")
        out.append(question)
        value = int(question.brief)
    return out


def _memory_chain(rng):
    """Something the user says about himself, other talk, and a question that needs it."""
    if rng.random() < 0.6:
        name = rng.choice(facts.NAMES) if rng.random() < 0.6 else talk.capital(talk.invented(rng))
        tell = rng.choice(("My name is {}.", "I am {}.", "Hi, I am {}.", "Hello, my name is {}."))
        said = Question(tell.format(name), f"Nice to meet you, {name}!", "", "memory")
        ask = rng.choice(("What is my name?", "What's my name?", "Who am I?",
                          "Do you remember my name?", "Can you tell me my name?"))
        asked = Question(ask, f"Your name is {name}.", "", f"memory {name} {ask}")
    else:
        noun, values = rng.choice((
            ("colour", ("red", "blue", "green", "yellow", "purple", "orange", "black", "white")),
            ("animal", talk.HEROES[:13]), ("number", tuple(map(str, range(2, 100)))),
            ("word", facts.WORDS)))
        value = rng.choice(values)
        said = Question(f"My favourite {noun} is {value}.", "I will remember that.", "", "memory")
        ask = rng.choice((f"What is my favourite {noun}?", f"Which {noun} do I like best?",
                          f"What was my favourite {noun}?"))
        asked = Question(ask, f"Your favourite {noun} is {value}.", "", f"memory {value} {ask}")
    return [said] + [any_question(rng) for _ in range(rng.randint(0, 3))] + [asked]


def _repeat_chain(rng):
    first = any_question(rng)
    ask = rng.choice(("Repeat that.", "Can you repeat that?", "Say that again.",
                      "What did you just say?", "Please say that again."))
    return [first, Question(ask, first.answer, first.brief, "repeat")]


def _story_chain(rng):
    again = rng.choice(("Another one, please.", "Tell me another one.", "Another story!",
                        "One more, please."))
    return [talk.story(rng), talk.story(rng)._replace(text=again)]


def _who_chain(rng):
    return [Question(rng.choice(("What is my name?", "Who am I?")),
                     "You have not told me your name.", "", "memory")]


_CHAINS = (_arithmetic_chain, talk.fact_chain, _memory_chain, _repeat_chain, _story_chain,
           _who_chain)
_CHAIN_SHARES = (5, 5, 4, 1, 0.5, 0.3)


def _turns(rng, count):
    """At least count questions, in chains that belong together or one by one."""
    out = []
    while len(out) < count:
        if rng.random() < 0.35:
            chain = rng.choices(_CHAINS, _CHAIN_SHARES)[0](rng)
            if any(held_out(key_of(question)) for question in chain):
                continue
            # What one user said of himself must not be said twice in one chat.
            if chain[-1].key and chain[-1].key.startswith("memory") and out:
                continue
            out.extend(chain)
        else:
            out.append(any_question(rng))
    return out


def _system(rng, turns):
    """(system message or None, whether it asks for brief answers)."""
    chance = rng.random()
    if chance < 0.70:
        return None, False
    if chance < 0.85 or not all(question.brief for question in turns):
        return rng.choice(PLAIN_SYSTEM), False
    return rng.choice(BRIEF_SYSTEM), True


def _messages(rng, system, turns, brief, noise):
    out = [("system", system)] if system else []
    for question in turns:
        out.append(("user", noisy(rng, question.text) if noise else question.text))
        out.append(("assistant", question.brief if brief else question.answer))
    return out


def chat(rng):
    """One training chat: a list of (role, content)."""
    chance = rng.random()
    if chance < 0.02:
        name = rng.choice(facts.NAMES)
        ask = rng.choice(("Who are you?", "What is your name?", "Introduce yourself."))
        system = rng.choice(("Your name is {}.", "You are {}, a friendly assistant.",
                             "You are called {}.")).format(name)
        return [("system", system), ("user", noisy(rng, ask)),
                ("assistant", f"I am {name}, a small assistant. How can I help you?")]
    if chance < 0.72:
        turns = [any_question(rng)]
    elif chance < 0.94:
        turns = _turns(rng, rng.randint(2, 5))
    else:
        turns = _turns(rng, rng.randint(6, 40))
    system, brief = _system(rng, turns)
    return _messages(rng, system, turns, brief, noise=True)


def evaluation(rng):
    """The held-out set: dicts with id, category, messages, answer."""
    out, seen = [], set()

    def put(category, messages, answer):
        messages = [{"role": role, "content": content} for role, content in messages]
        out.append({"id": len(out) + 1, "category": category, "messages": messages,
                    "answer": answer})

    for category, make, _, count in CATEGORIES:
        while count:
            question = draw(rng, make, from_held_out=True)
            if key_of(question) in seen:
                continue
            seen.add(key_of(question))
            put(category, [("user", question.text)], question.answer)
            count -= 1
    count = CONVERSATIONS
    while count:
        # Earlier turns and the system message as in training; the last question is held out.
        if count % 2:
            chain = rng.choice((_arithmetic_chain, talk.fact_chain, _memory_chain))(rng)
            earlier, question = chain[:-1], chain[-1]
            if (any(held_out(key_of(q)) for q in earlier) or not held_out(key_of(question))
                    or key_of(question) in seen):
                continue
            system, brief = None, False
        else:
            earlier = [any_question(rng) for _ in range(rng.randint(0, 3))]
            question = draw(rng, rng.choices(_MAKERS[:11], _SHARES[:11])[0], from_held_out=True)
            if key_of(question) in seen:
                continue
            brief = rng.random() < 0.5
            system = rng.choice(BRIEF_SYSTEM if brief else PLAIN_SYSTEM)
        seen.add(key_of(question))
        messages = _messages(rng, system, earlier + [question], brief, noise=False)
        put("conversation", messages[:-1], messages[-1][1])
        count -= 1
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("eval", "sample"))
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--count", type=int, default=20)
    args = parser.parse_args()
    if args.what == "eval":
        rows = evaluation(random.Random(args.seed))
    else:
        rng = random.Random(args.seed + 1)
        rows = ([{"role": role, "content": content} for role, content in chat(rng)]
                for _ in range(args.count))
    for row in rows:
        sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
