"""Question generators with one right answer: numbers, ordering, counting, units and the calendar.

Every generator takes a random.Random and returns a Question. The key decides whether a question
belongs to the held-out set (make_data.py): for arithmetic it holds the operands alone, so that no
wording of a held-out sum is ever trained on; elsewhere it is the question's own text.
"""
from collections import namedtuple

import facts

# text: the question; answer: the full reply; brief: the reply under an "answer briefly" system
# message; key: what the split hashes, None for the normalised text.
Question = namedtuple("Question", "text answer brief key", defaults=(None,))

OF_TIMES = ("×", "*", "x", "times", "multiplied by")


def _number(rng):
    """A number whose length, not value, is drawn: short ones are what people type."""
    return rng.randrange(10 ** rng.choices((1, 2, 3, 4), (25, 32, 33, 10))[0])


def _ask(rng, expression):
    return rng.choice((
        "What is {}?", "Calculate {}.", "How much is {}?", "{} = ?", "{}", "Compute {}.",
        "What does {} equal?", "Can you tell me what {} is?", "{}=", "Work out {}.", "Solve {}.",
    )).format(expression)


def addition(rng):
    if rng.random() < 0.12:
        a, b, c = (rng.randrange(1, 60) for _ in range(3))
        text = _ask(rng, f"{a} + {b} + {c}")
        return Question(text, f"{a} + {b} + {c} = {a + b} + {c} = {a + b + c}", str(a + b + c),
                        f"add {a} {b} {c}")
    a, b = _number(rng), _number(rng)
    form = rng.randrange(8)
    if form < 4:
        text = _ask(rng, f"{a} + {b}")
    elif form == 4:
        text = _ask(rng, f"{a}+{b}")
    elif form == 5:
        text = _ask(rng, f"{a} plus {b}")
    elif form == 6:
        text = rng.choice(("What is the sum of {} and {}?", "Add {} and {}.", "Add up {} and {}.",
                           "Give me the sum of {} and {}.")).format(a, b)
    else:
        text = f"Add {b} to {a}."
    # Commuted sums count as the same question.
    return Question(text, f"{a} + {b} = {a + b}", str(a + b), f"add {min(a, b)} {max(a, b)}")


def subtraction(rng):
    a, b = _number(rng), _number(rng)
    if a < b and rng.random() < 0.75:
        a, b = b, a
    form = rng.randrange(8)
    if form < 4:
        text = _ask(rng, f"{a} - {b}")
    elif form == 4:
        text = _ask(rng, f"{a}-{b}")
    elif form == 5:
        text = _ask(rng, f"{a} minus {b}")
    elif form == 6:
        text = f"Subtract {b} from {a}."
    else:
        text = rng.choice(("What is {} take away {}?", "What is left if you take {1} from {0}?",
                           "What is the result of {} less {}?")).format(a, b)
    return Question(text, f"{a} - {b} = {a - b}", str(a - b), f"sub {a} {b}")


def times_steps(a, b):
    """'a × b' and its value, by way of the partial products a person would write down."""
    tens_a, ones_a, tens_b, ones_b = a // 10 * 10, a % 10, b // 10 * 10, b % 10
    if a < 10 and b < 10 or a in (0, 10, 100) or b in (0, 10, 100):
        return f"{a} × {b} = {a * b}"
    if min(a, b) < 10:
        long, digit = max(a, b), min(a, b)
        parts = [n * digit for n in (long // 100 * 100, long // 10 % 10 * 10, long % 10) if n]
        steps = f"{a} × {b} = {' + '.join(map(str, parts))}"
        if len(parts) == 3:
            steps += f" = {parts[0] + parts[1]} + {parts[2]}"
        return steps if len(parts) == 1 else f"{steps} = {a * b}"
    parts = [x * y for x in (tens_a, ones_a) for y in (tens_b, ones_b) if x * y]
    steps = f"{a} × {b} = {' + '.join(map(str, parts))}"
    if len(parts) == 4:
        steps += f" = {parts[0] + parts[1]} + {parts[2] + parts[3]}"
    return steps if len(parts) == 1 else f"{steps} = {a * b}"


def multiplication(rng):
    kind = rng.random()
    if kind < 0.25:
        a, b = rng.randrange(11), rng.randrange(11)
    elif kind < 0.55:
        a, b = rng.randrange(10, 100), rng.randrange(2, 10)
    elif kind < 0.65:
        a, b = rng.randrange(2, 100), rng.choice((10, 100))
    elif kind < 0.75:
        a, b = rng.randrange(101, 1000), rng.randrange(2, 10)
    else:
        a, b = rng.randrange(11, 100), rng.randrange(11, 100)
    if rng.random() < 0.5:
        a, b = b, a
    form = rng.randrange(8)
    if form < 6:
        sign = rng.choice(OF_TIMES)
        gap = "" if sign in "×*x" and rng.random() < 0.25 else " "
        text = _ask(rng, f"{a}{gap}{sign}{gap}{b}")
    elif form == 6:
        text = rng.choice(("Multiply {} by {}.", "What is the product of {} and {}?",
                           "Multiply {} and {}.")).format(a, b)
    else:
        text = f"What do you get if you multiply {a} by {b}?"
    answer = times_steps(a, b)
    # The tables up to ten are too few to leave any out: there, held out means held-out wording.
    key = f"mul {min(a, b)} {max(a, b)}" if max(a, b) > 10 and not {a, b} & {100} else None
    return Question(text, answer, answer, key)


def _percentage(rng):
    share, whole = rng.choice((5, 10, 20, 25, 50, 75)), 20 * rng.randint(1, 25)
    text = rng.choice((_ask(rng, f"{share}% of {whole}"), _ask(rng, f"{share} percent of {whole}"),
                       _ask(rng, f"{share} % of {whole}")))
    return Question(text, f"{share}% of {whole} = {share * whole // 100}",
                    str(share * whole // 100))


def division(rng):
    """Divisions, with and without a remainder, and percentages."""
    if rng.random() < 0.15:
        return _percentage(rng)
    b = rng.randrange(2, 13)
    if rng.random() < 0.65:
        q, r = rng.randrange(1, 13), 0
    else:
        q, r = rng.randrange(1, 10), rng.randrange(1, b)
    a = b * q + r
    form = rng.randrange(6)
    if form < 4:
        sign = rng.choice(("÷", "/", "divided by", ":"))
        gap = "" if sign in "÷/" and rng.random() < 0.25 else " "
        text = _ask(rng, f"{a}{gap}{sign}{gap}{b}")
    elif form == 4:
        text = f"Divide {a} by {b}."
    else:
        text = rng.choice((f"How many times does {b} go into {a}?", f"What is {a} over {b}?"))
    value = f"{q} remainder {r}" if r else str(q)
    return Question(text, f"{a} ÷ {b} = {value}", value)


def problem(rng):
    """Short word problems; the reply shows the sum and then says it."""
    name, other = rng.sample(facts.NAMES, 2)
    items = rng.choice(facts.ITEMS)
    a, b = rng.randrange(2, 100), rng.randrange(2, 100)
    kind = rng.randrange(4)
    if kind == 0:
        verb = rng.choice(("buys", "finds", "gets", "picks up", "is given"))
        text = rng.choice((
            f"{name} has {a} {items} and {verb} {b} more. How many {items} does {name} have now?",
            f"{name} has {a} {items}. Then {name} {verb} {b} more. "
            f"How many {items} are there now?"))
        answer = f"{a} + {b} = {a + b}. {name} has {a + b} {items}."
        key, value = f"add {min(a, b)} {max(a, b)}", a + b
    elif kind == 1:
        a, b = max(a, b) + 2, min(a, b)
        verb = rng.choice(("gives away", "loses", "sells", "drops"))
        text = rng.choice((
            f"{name} has {a} {items} and {verb} {b}. How many {items} are left?",
            f"{name} has {a} {items}. {name} {verb} {b} of them. How many does {name} have left?"))
        answer = f"{a} - {b} = {a - b}. {name} has {a - b} {items} left."
        key, value = f"sub {a} {b}", a - b
    elif kind == 2:
        a, b = rng.randrange(2, 10), rng.randrange(2, 10)
        box = rng.choice(("boxes", "bags", "baskets", "jars"))
        text = (f"{name} has {a} {box} with {b} {items} in each. "
                f"How many {items} are there in total?")
        answer = f"{a} × {b} = {a * b}. There are {a * b} {items}."
        key, value = None, a * b
    else:
        text = rng.choice((
            f"{name} has {a} {items} and {other} has {b}. How many {items} do they have together?",
            f"{name} has {a} {items}, {other} has {b} {items}. How many do they have in total?"))
        answer = f"{a} + {b} = {a + b}. Together they have {a + b} {items}."
        key, value = f"add {min(a, b)} {max(a, b)}", a + b
    return Question(text, answer, str(value), key)


def ordering(rng):
    kind = rng.randrange(8)
    if kind < 2:
        values = rng.sample(range(100 if rng.random() < 0.7 else 1000), rng.randint(3, 6))
        listing = ", ".join(map(str, values))
        down = rng.random() < 0.35
        ordered = ", ".join(map(str, sorted(values, reverse=down)))
        if down:
            text = rng.choice(("Sort these numbers from largest to smallest: {}",
                               "Sort in descending order: {}", "Put {} in descending order.",
                               "Order these from high to low: {}"))
        else:
            text = rng.choice(("Sort these numbers: {}", "Sort {}", "Put {} in ascending order.",
                               "Sort these numbers from smallest to largest: {}",
                               "Order these from low to high: {}", "Sort in ascending order: {}"))
        return Question(text.format(listing), ordered, ordered)
    if kind == 2:
        words = rng.sample(facts.WORDS, rng.randint(3, 5))
        text = rng.choice(("Sort these words alphabetically: {}", "Put {} in alphabetical order.",
                           "Sort in alphabetical order: {}", "Alphabetize: {}"))
        ordered = ", ".join(sorted(words))
        return Question(text.format(", ".join(words)), ordered, ordered)
    if kind == 3:
        values = rng.sample(range(1000 if rng.random() < 0.4 else 100), rng.randint(2, 5))
        big = rng.random() < 0.5
        word = rng.choice(("largest", "biggest", "greatest") if big else ("smallest", "lowest"))
        value = max(values) if big else min(values)
        text = rng.choice((f"Which number is the {word}: {{}}?", f"What is the {word} of {{}}?",
                           f"Find the {word} number: {{}}", f"Which of these is {word}: {{}}?"))
        shown = rng.choice(("largest",) if big else ("smallest",))
        return Question(text.format(", ".join(map(str, values))),
                        f"The {shown} number is {value}.", str(value))
    if kind == 4:
        a, b = rng.sample(range(1000 if rng.random() < 0.6 else 100), 2)
        if rng.random() < 0.4:
            text = rng.choice((f"Is {a} greater than {b}?", f"Is {a} more than {b}?",
                               f"Is {a} larger than {b}?"))
            answer = f"Yes, {a} > {b}." if a > b else f"No, {a} < {b}."
            return Question(text, answer, answer.split(",")[0])
        big = rng.random() < 0.5
        word = rng.choice(("larger", "bigger", "greater") if big else ("smaller", "less"))
        value = max(a, b) if big else min(a, b)
        text = rng.choice((f"Which is {word}, {a} or {b}?", f"Which is {word}: {a} or {b}?",
                           f"What is {word}, {a} or {b}?"))
        return Question(text, f"{value} is {'larger' if big else 'smaller'}.", str(value))
    if kind == 5:
        start, step = rng.randrange(0, 60), rng.randrange(1, 13)
        if rng.random() < 0.25:
            start, step = start + 6 * step, -step
        values = [start + step * i for i in range(rng.randint(3, 5))]
        text = rng.choice(("What comes next: {}?", "Continue the sequence: {}",
                           "What number comes next: {}, ...?", "Which number follows {}?"))
        value = values[-1] + step
        return Question(text.format(", ".join(map(str, values))), f"{value} comes next.",
                        str(value))
    if kind == 6:
        n = rng.randrange(1000)
        if rng.random() < 0.5:
            odd = "odd" if n % 2 else "even"
            text = rng.choice((f"Is {n} even or odd?", f"Is {n} an even or an odd number?",
                               f"Even or odd: {n}?"))
            return Question(text, f"{n} is {odd}.", odd)
        if rng.random() < 0.5:
            text = rng.choice((f"What number comes after {n}?", f"Which number follows {n}?",
                               f"What comes after {n}?"))
            return Question(text, f"{n + 1} comes after {n}.", str(n + 1))
        n += 1
        text = rng.choice((f"What number comes before {n}?", f"Which number is just before {n}?",
                           f"What comes before {n}?"))
        return Question(text, f"{n - 1} comes before {n}.", str(n - 1))
    i = rng.randrange(25)
    a, b = chr(65 + i), chr(66 + i)
    if rng.random() < 0.5:
        text = rng.choice((f"Which letter comes after {a}?", f"What letter follows {a}?",
                           f"What is the letter after {a} in the alphabet?",
                           f"In the alphabet, what comes after {a}?",
                           f"Which letter of the alphabet is right after {a}?"))
        return Question(text, f"{b} comes after {a}.", b)
    text = rng.choice((f"Which letter comes before {b}?", f"What letter is just before {b}?",
                       f"What is the letter before {b} in the alphabet?",
                       f"In the alphabet, what comes before {b}?",
                       f"Which letter of the alphabet is right before {b}?"))
    return Question(text, f"{a} comes before {b}.", a)


def counting(rng):
    kind = rng.randrange(3)
    if kind == 0:
        words = rng.sample(facts.WORDS, rng.randint(2, 9))
        text = rng.choice(("How many items are in this list: {}?", "Count the items: {}",
                           "How many words are here: {}?", "How many things are listed: {}?",
                           "Count the words: {}"))
        value = len(words)
        return Question(text.format(", ".join(words)), f"There are {value}.", str(value))
    if kind == 1:
        target, *others = rng.sample(facts.WORDS, 3)
        value = rng.randint(1, 5)
        words = [target] * value + [rng.choice(others) for _ in range(rng.randint(1, 4))]
        rng.shuffle(words)
        listing = " ".join(words) if rng.random() < 0.4 else ", ".join(words)
        text = rng.choice((f"How many times does {target} appear in: {listing}?",
                           f"How often is {target} in this list: {listing}?",
                           f"Count how many times {target} occurs: {listing}"))
        times = "time" if value == 1 else "times"
        return Question(text, f"{target} appears {value} {times}.", str(value))
    low = rng.choice((1, rng.randrange(1, 90)))
    high = low + (rng.randint(2, 12) if rng.random() < 0.85 else rng.randint(13, 60))
    down = rng.random() < 0.35
    first, last = (high, low) if down else (low, high)
    text = rng.choice((f"Count from {first} to {last}.", f"Please count from {first} to {last}.",
                       f"Count {'down' if down else 'up'} from {first} to {last}."))
    answer = ", ".join(map(str, range(first, last - 1, -1) if down else range(first, last + 1)))
    return Question(text, answer, answer)


def letters(rng):
    word = rng.choice(facts.WORDS)
    spelled = "-".join(word)
    quoted = rng.choice((word, f"'{word}'", f'"{word}"'))
    kind = rng.randrange(5)
    if kind == 0:
        text = rng.choice(("How many letters are in the word {}?", "How many letters does {} have?",
                           "Count the letters in {}.", "How long is the word {}?",
                           "How many letters are there in {}?"))
        return Question(text.format(quoted), f"{spelled}: {len(word)} letters.", str(len(word)))
    if kind == 1:
        text = rng.choice(("Spell {}.", "Spell the word {}.", "How do you spell {}?",
                           "Can you spell {}?", "Please spell the word {}."))
        return Question(text.format(quoted), spelled, spelled)
    if kind == 2:
        text = rng.choice(("Spell {} backwards.", "Reverse the word {}.",
                           "What is {} spelled backwards?", "Spell the word {} in reverse."))
        answer = f"{spelled} backwards is {spelled[::-1]}."
        return Question(text.format(quoted), answer, spelled[::-1])
    if kind == 3:
        letter = rng.choice(word if rng.random() < 0.75 else "aeiourstln")
        text = rng.choice((f"How many times does the letter {letter} appear in {quoted}?",
                           f"How many {letter}'s are in the word {quoted}?",
                           f"How often does {letter} occur in {quoted}?",
                           f"Count the letter {letter} in {quoted}."))
        value = word.count(letter)
        answer = f"{spelled}: {value} {'time' if value == 1 else 'times'}."
        return Question(text, answer, answer)
    first = rng.random() < 0.5
    which = "first" if first else "last"
    text = rng.choice((f"What is the {which} letter of {quoted}?",
                       f"Which letter does {quoted} {'start' if first else 'end'} with?",
                       f"Tell me the {which} letter of the word {quoted}.",
                       f"What letter comes {which} in {quoted}?"))
    letter = word[0] if first else word[-1]
    return Question(text, f"The {which} letter of {word} is {letter}.", letter)


# (large unit, singular, small unit, factor, values that are asked)
UNITS = (
    ("kilometres", "kilometre", "metres", 1000, range(1, 200)),
    ("metres", "metre", "centimetres", 100, range(1, 200)),
    ("centimetres", "centimetre", "millimetres", 10, range(1, 200)),
    ("kilograms", "kilogram", "grams", 1000, range(1, 200)),
    ("tonnes", "tonne", "kilograms", 1000, range(1, 200)),
    ("litres", "litre", "millilitres", 1000, range(1, 200)),
    ("hours", "hour", "minutes", 60, range(1, 31)),
    ("minutes", "minute", "seconds", 60, range(1, 31)),
    ("days", "day", "hours", 24, range(1, 15)),
    ("weeks", "week", "days", 7, range(1, 31)),
    ("years", "year", "months", 12, range(1, 21)),
    ("feet", "foot", "inches", 12, range(1, 21)),
    ("yards", "yard", "feet", 3, range(1, 31)),
    ("dozen", "dozen", "eggs", 12, range(1, 13)),
    ("euros", "euro", "cents", 100, range(1, 200)),
)


def units(rng):
    big, singular, small, factor, values = rng.choice(UNITS)
    n = rng.choice(values)
    one = singular if n == 1 else big
    total = n * factor
    if rng.random() < 0.65 or small == "eggs":
        text = rng.choice(("How many {small} are {n} {one}?", "How many {small} are in {n} {one}?",
                           "Convert {n} {one} to {small}.", "What is {n} {one} in {small}?",
                           "How many {small} make {n} {one}?", "{n} {one} in {small}?",
                           "Change {n} {one} into {small}.", "{n} {one} is how many {small}?"))
        return Question(text.format(n=n, one=one, small=small), f"{n} {one} = {total} {small}",
                        str(total))
    text = rng.choice(("How many {big} are {total} {small}?", "Convert {total} {small} to {big}.",
                       "What is {total} {small} in {big}?", "{total} {small} in {big}?",
                       "Change {total} {small} into {big}.", "{total} {small} is how many {big}?"))
    return Question(text.format(big=big, total=total, small=small), f"{total} {small} = {n} {one}",
                    str(n))


def _date_text(rng, day, month):
    return rng.choice((f"{day} {month}", f"{month} {day}"))


def calendar(rng):
    kind = rng.randrange(9)
    if kind < 2:
        table = facts.WEEKDAYS if kind == 0 else facts.MONTHS
        noun = "day" if kind == 0 else "month"
        i = rng.randrange(len(table))
        if rng.random() < 0.5:
            text = rng.choice((f"Which {noun} comes after {{}}?", f"What {noun} follows {{}}?",
                               f"What is the {noun} after {{}}?",
                               f"{{}} is followed by which {noun}?",
                               f"Tell me the {noun} that comes after {{}}."))
            value = table[(i + 1) % len(table)]
            return Question(text.format(table[i]), f"{value} comes after {table[i]}.", value)
        text = rng.choice((f"Which {noun} comes before {{}}?", f"What {noun} precedes {{}}?",
                           f"What is the {noun} before {{}}?",
                               f"Which {noun} is right before {{}}?",
                           f"Tell me the {noun} that comes before {{}}."))
        value = table[i - 1]
        return Question(text.format(table[i]), f"{value} comes before {table[i]}.", value)
    if kind == 2:
        i = rng.randrange(12)
        month, days = facts.MONTHS[i], facts.MONTH_DAYS[i]
        text = rng.choice(("How many days are in {}?", "How many days does {} have?",
                           "How long is {}, in days?", "What is the number of days in {}?",
                           "How many days are there in the month of {}?",
                           "Tell me how many days {} has."))
        extra = " (29 in a leap year)" if i == 1 else ""
        return Question(text.format(month), f"{month} has {days} days{extra}.", str(days))
    if kind < 5:
        i, n = rng.randrange(7), rng.randint(2, 30)
        day = facts.WEEKDAYS[i]
        if rng.random() < 0.6:
            text = rng.choice((f"What weekday is {n} days after {day}?",
                               f"Which day is {n} days after {day}?",
                               f"Today is {day}. What day is it in {n} days?",
                               f"If today is {day}, what day will it be in {n} days?"))
            value = facts.WEEKDAYS[(i + n) % 7]
            return Question(text, f"{n} days after {day} is {value}.", value)
        text = rng.choice((f"What weekday is {n} days before {day}?",
                           f"Which day is {n} days before {day}?",
                           f"Today is {day}. What day was it {n} days ago?",
                           f"If today is {day}, what day was it {n} days ago?"))
        value = facts.WEEKDAYS[(i - n) % 7]
        return Question(text, f"{n} days before {day} is {value}.", value)
    if kind == 5:
        i = rng.randrange(12)
        month, nth = facts.MONTHS[i], facts.ORDINALS[i]
        if rng.random() < 0.5:
            text = rng.choice(("Which month is the {} month of the year?", "What is the {} month?",
                               "Name the {} month of the year.",
                               "Which month comes {} in the year?"))
            return Question(text.format(nth), f"The {nth} month is {month}.", month)
        text = rng.choice(("What number is the month {}?", "Which month of the year is {}?",
                           "What is the position of {} in the year?"))
        return Question(text.format(month), f"{month} is the {nth} month.", nth)
    if kind == 6:
        year = rng.randrange(1900, 2101)
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        text = rng.choice((f"Is {year} a leap year?", f"Was or will {year} be a leap year?",
                           f"Does February {year} have 29 days?", f"Leap year or not: {year}?"))
        answer = f"Yes, {year} is a leap year." if leap else f"No, {year} is not a leap year."
        return Question(text, answer, answer.split(",")[0])
    if kind == 7:
        i = rng.randrange(12)
        last = facts.MONTH_DAYS[i]
        # The end of February depends on the year, so it is never asked without one.
        day = rng.choice((last, rng.randint(1, last))) if i != 1 else rng.randint(1, 27)
        month, after = facts.MONTHS[i], facts.MONTHS[(i + 1) % 12]
        value = f"{day + 1} {month}" if day < last else f"1 {after}"
        text = rng.choice(("What date comes after {}?", "What is the day after {}?",
                           "Which date follows {}?", "What date is one day after {}?"))
        return Question(text.format(_date_text(rng, day, month)),
                        f"The day after {day} {month} is {value}.", value)
    hour, minute, add = rng.randrange(24), 5 * rng.randrange(12), 5 * rng.randrange(1, 18)
    total = (60 * hour + minute + add) % 1440
    now, later = f"{hour:02}:{minute:02}", f"{total // 60:02}:{total % 60:02}"
    text = rng.choice((f"What time is it {add} minutes after {now}?",
                       f"It is {now}. What time will it be in {add} minutes?",
                       f"What is {now} plus {add} minutes?"))
    return Question(text, f"{add} minutes after {now} it is {later}.", later,
                    f"time {now} {add}")
