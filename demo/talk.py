"""Questions about the tables in facts.py, small talk, and template-rich stories and poems."""
import facts
from tasks import Question

# One relation: how to ask, the full reply, the brief reply, and the table. {s} is the subject, {a}
# the answer, {S} and {A} the same with a capital, {an} and {aa} the same with 'a' or 'an' before.
RELATIONS = (
    ("capital", facts.CAPITALS, "The capital of {s} is {a}.", "{a}", (
        "What is the capital of {s}?", "Which city is the capital of {s}?",
        "What's the capital of {s}?", "Name the capital of {s}.", "{s}: what is the capital?",
        "Tell me the capital of {s}.", "Do you know the capital of {s}?",
        "What is the capital city of {s}?", "I need the capital of {s}.", "Capital of {s}?",
        "The capital of {s}?", "{S} capital?", "Capital city of {s}?")),
    ("country", [(a, s) for s, a in facts.CAPITALS], "{s} is the capital of {a}.", "{A}", (
        "{s} is the capital of which country?", "Of which country is {s} the capital?",
        "Which country has the capital {s}?", "Which country's capital is {s}?",
        "What country is {s} the capital of?", "Name the country whose capital is {s}.",
        "{s} is in which country?", "In which country is {s}?", "Where is {s}?")),
    ("continent", facts.CONTINENTS, "{s} is in {a}.", "{a}", (
        "On which continent is {s}?", "Which continent is {s} in?", "What continent is {s} on?",
        "Where is {s}?", "In which part of the world is {s}?", "{s} is on which continent?")),
    ("currency", facts.CURRENCIES, "The currency of {s} is {a}.", "{A}", (
        "What is the currency of {s}?", "Which currency is used in {s}?",
        "What money do people use in {s}?", "What currency does {s} have?",
        "Tell me the currency of {s}.", "How do people pay in {s}?", "Currency of {s}?",
        "The currency of {s}?")),
    ("symbol", facts.SYMBOLS, "The symbol of {s} is {a}.", "{a}", (
        "What is the chemical symbol of {s}?", "What is the symbol for {s}?",
        "Which symbol does {s} have?", "Tell me the chemical symbol for {s}.",
        "How is {s} written in chemistry?", "What's the element symbol of {s}?",
        "Give me the symbol of the element {s}.", "Symbol of {s}?", "Symbol for {s}?",
        "Chemical symbol of {s}?")),
    ("element", [(a, s) for s, a in facts.SYMBOLS], "{s} is the symbol of {a}.", "{A}", (
        "Which element has the symbol {s}?", "What element is {s}?",
        "{s} is the symbol of which element?", "What does the chemical symbol {s} stand for?",
        "Name the element with the symbol {s}.", "In chemistry, what is {s}?")),
    ("sound", facts.ANIMAL_SOUNDS, "{An} {a}.", "It {a}.", (
        "What sound does {an} make?", "What does {an} do to make a noise?",
        "Which sound does {an} make?", "What noise does {an} make?", "How does {an} sound?",
        "Tell me the sound that {an} makes.", "What does {an} say?", "Sound of {an}?")),
    ("young", facts.ANIMAL_YOUNG, "A young {s} is called {aa}.", "{A}", (
        "What is a baby {s} called?", "What do you call a young {s}?",
        "What is a young {s} called?",
        "What's the name for a baby {s}?", "How is a young {s} called?",
        "Tell me what a baby {s} is called.", "What do we call the young of {an}?",
        "Name for a baby {s}?", "A baby {s} is called what?")),
    ("legs", facts.ANIMAL_LEGS, "{An} has {a} legs.", "{A}", (
        "How many legs does {an} have?", "How many legs has {an}?", "Count the legs of {an}.",
        "What number of legs does {an} have?", "Tell me how many legs {an} has.",
        "Legs of {an}?", "How many legs do you count on {an}?")),
    ("home", facts.ANIMAL_HOMES, "{An} lives in {aa}.", "{A}", (
        "Where does {an} live?", "What is the home of {an} called?", "What does {an} live in?",
        "What do you call the home of {an}?", "In what kind of place does {an} live?",
        "Home of {an}?")),
    ("group", facts.ANIMAL_GROUPS, "A group of {s} is called a {a}.", "{A}", (
        "What is a group of {s} called?", "What do you call a group of {s}?",
        "How is a group of {s} called?", "What's the word for a group of {s}?",
        "Many {s} together are called what?", "Group of {s}?", "Name for a group of {s}?")),
    ("colour", facts.THING_COLOURS, "{S} is {a}.", "{A}", (
        "What colour is {s}?", "What color is {s}?", "Which colour does {s} have?",
        "Tell me the colour of {s}.", "What is the colour of {s}?", "What is the color of {s}?",
        "Colour of {s}?", "Color of {s}?")),
    ("opposite", facts.OPPOSITES, "The opposite of {s} is {a}.", "{a}", (
        "What is the opposite of {s}?", "What's the opposite of {s}?", "Opposite of {s}?",
        "Which word means the opposite of {s}?", "Give me the opposite of {s}.",
        "What word is the opposite of {s}?", "Tell me an antonym of {s}.")),
    ("plural", facts.PLURALS, "The plural of {s} is {a}.", "{a}", (
        "What is the plural of {s}?", "What's the plural of {s}?", "Plural of {s}?",
        "How do you write more than one {s}?", "Give the plural form of {s}.",
        "Tell me the plural of {s}.")),
    ("past", facts.PAST_TENSES, "The past tense of {s} is {a}.", "{a}", (
        "What is the past tense of {s}?", "What's the past tense of {s}?", "Past tense of {s}?",
        "What is the past tense of the verb to {s}?", "Give the past tense of {s}.",
        "How do you put {s} into the past tense?")),
    ("sides", facts.SHAPES, "{An} has {a} sides.", "{A}", (
        "How many sides does {an} have?", "How many sides has {an}?",
        "What number of sides does {an} have?", "Tell me how many sides {an} has.",
        "How many sides are there in {an}?", "Count the sides of {an}.", "Sides of {an}?")),
    ("misc", facts.MISC, "It is {a}.", "{A}", (
        "What is {s}?", "Can you tell me {s}?", "Do you know {s}?", "Tell me {s}.",
        "Please name {s}.", "I would like to know {s}.", "{S}?", "What's {s}?")),
    ("season", facts.SEASONS, "In Europe, {s} is in {a}.", "{A}", (
        "In which season is {s} in Europe?", "Which season is {s} in Europe?",
        "What season is it in Europe in {s}?", "Tell me the season of {s} in Europe.")),
)

FOLLOW_UPS = ("And {}?", "What about {}?", "And what about {}?", "And for {}?", "How about {}?")


def capital(text):
    return text[:1].upper() + text[1:]


def article(noun):
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def _fill(pattern, s, a):
    return pattern.format(s=s, a=a, S=capital(s), A=capital(a), an=article(s),
                          An=capital(article(s)), aa=article(a) if a else a)


def relation_question(rng, relation, pair=None):
    _, table, reply, brief, phrasings = relation
    s, a = pair or rng.choice(table)
    text = capital(_fill(rng.choice(phrasings), s, a))
    return Question(text, _fill(reply, s, a), _fill(brief, s, a))


def _ordered(rng):
    """Planets, atomic numbers, number words, Roman numerals, colour mixes, translations."""
    kind = rng.randrange(7)
    if kind == 0:
        i = rng.randrange(8)
        planet, nth = facts.PLANETS[i], facts.ORDINALS[i]
        if rng.random() < 0.5:
            text = rng.choice(("Which planet is the {} from the Sun?", "What is the {} planet?",
                               "Name the {} planet from the Sun.", "Which is the {} planet?",
                               "What is the {} planet of the solar system?"))
            return Question(text.format(nth), f"The {nth} planet is {planet}.", planet)
        text = rng.choice(("Which position from the Sun does {} have?",
                           "What number from the Sun is the planet {}?",
                           "Counted from the Sun, which planet is {}?"))
        return Question(text.format(planet), f"{planet} is the {nth} planet.", nth)
    if kind == 1:
        i = rng.randrange(20)
        name = facts.ATOMIC_ORDER[i]
        if rng.random() < 0.5:
            text = rng.choice(("What is the atomic number of {}?", "Which atomic number has {}?",
                               "Tell me the atomic number of {}.", "What number is {} in the "
                               "periodic table?"))
            return Question(text.format(name), f"The atomic number of {name} is {i + 1}.",
                            str(i + 1))
        text = rng.choice(("Which element has the atomic number {}?",
                           "What is element number {}?", "Name the element with atomic number {}."))
        return Question(text.format(i + 1), f"Element {i + 1} is {name}.", capital(name))
    if kind == 2:
        n = rng.randrange(1000) if rng.random() < 0.5 else rng.randrange(100)
        words = facts.number_words(n)
        if rng.random() < 0.5:
            text = rng.choice(("Write {} in words.", "How do you write {} in words?",
                               "Spell out the number {}.", "What is {} in words?"))
            return Question(text.format(n), f"{n} is {words}.", words)
        text = rng.choice(("Write {} as a number.", "Write {} in digits.",
                           "What is {} in digits?"))
        return Question(text.format(words), f"{capital(words)} is {n}.", str(n))
    if kind == 3:
        n = rng.randint(1, 100)
        if rng.random() < 0.5:
            text = rng.choice(("What is {} in Roman numerals?", "Write {} as a Roman numeral.",
                               "How did the Romans write {}?", "Convert {} to Roman numerals."))
            return Question(text.format(n), f"{n} is {facts.roman(n)}.", facts.roman(n))
        text = rng.choice(("What number is the Roman numeral {}?", "What does the Roman numeral {} "
                           "mean?", "Convert the Roman numeral {} to a number."))
        return Question(text.format(facts.roman(n)), f"{facts.roman(n)} is {n}.", str(n))
    if kind == 4:
        mix, value = rng.choice(facts.COLOUR_MIXES)
        a, b = mix.split("+")
        if rng.random() < 0.5:
            a, b = b, a
        text = rng.choice((f"What do you get when you mix {a} and {b}?",
                           f"What colour do {a} and {b} make?",
                           f"Mix {a} with {b}: which colour is it?",
                           f"Which colour do you get from {a} and {b}?"))
        return Question(text, f"{capital(a)} and {b} make {value}.", capital(value))
    language = rng.choice(tuple(facts.TRANSLATIONS))
    word, foreign = rng.choice(facts.TRANSLATIONS[language])
    if rng.random() < 0.7:
        text = rng.choice((f"What is {word} in {language}?", 
                           f"How do you say {word} in {language}?",
                           f"Translate {word} into {language}.", f"{capital(word)} in {language}?",
                           f"What is the {language} word for {word}?",
                           f"Tell me how to say {word} in {language}."))
        return Question(text, f"{capital(word)} in {language} is {foreign}.", foreign)
    text = rng.choice((f"What does the {language} word {foreign} mean?",
                       f"What is the {language} word {foreign} in English?",
                       f"Translate {foreign} from {language} into English.",
                       f"In {language}, what does {foreign} mean?"))
    return Question(text, f"{capital(foreign)} means {word}.", capital(word))


def fact(rng):
    if rng.random() < 0.3:
        return _ordered(rng)
    return relation_question(rng, _pick_relation(rng))


_WEIGHTS = [len(relation[1]) ** 0.7 for relation in RELATIONS]


def _pick_relation(rng):
    return rng.choices(RELATIONS, _WEIGHTS)[0]


def fact_chain(rng):
    """A question of one relation and short follow-ups that only name the next subject."""
    relation = rng.choice(RELATIONS[:16])
    pairs = rng.sample(relation[1], rng.randint(2, 4))
    out = [relation_question(rng, relation, pairs[0])]
    for s, a in pairs[1:]:
        subject = article(s) if "{an}" in relation[4][0] else s
        text = rng.choice(FOLLOW_UPS).format(subject)
        # The same words follow different questions, so the relation is part of the key.
        out.append(Question(text, _fill(relation[2], s, a), _fill(relation[3], s, a),
                            f"{relation[0]} {text}"))
    return out


WHO = "I am the Sluice demo model, a very small mixture-of-experts language model."
CAN = """I can help with small things:
- arithmetic, such as 47 + 85 or 23 × 6
- sorting, counting and spelling
- units, days and dates
- a few hundred facts
- short stories and poems"""
DO_NOT_KNOW = "I am only a very small model, and I do not know that."

SMALL_TALK = (
    (("Hello", "Hi", "Hello!", "Hi there", "Hey", "Good day", "Hello there!", "Greetings", "Hi!",
      "Hey there"), "Hello! How can I help you?"),
    (("Good morning", "Good morning!"), "Good morning! How can I help you?"),
    (("Good evening", "Good evening!"), "Good evening! How can I help you?"),
    (("How are you?", "How are you doing?", "How do you do?", "How is it going?", "Are you well?"),
     "I am fine, thank you. How can I help you?"),
    (("Thank you", "Thanks", "Thank you!", "Thanks a lot", "Thanks!", "Many thanks",
      "Thank you very much", "That helped, thanks"), "You are welcome."),
    (("Bye", "Goodbye", "Goodbye!", "See you", "Bye bye", "See you later", "Farewell"),
     "Goodbye! Have a nice day."),
    (("Who are you?", "What are you?", "What is your name?", "Tell me who you are.", "Introduce "
      "yourself.", "Who am I talking to?", "What model are you?", "Which model is this?",
      "Are you a human?", "Are you an AI?", "Tell me about yourself."), WHO),
    (("What can you do?", "What can I ask you?", "How can you help me?", "Help",
      "What do you know?",
      "Help me", "What are you good at?", "What questions can you answer?"), CAN),
    (("Who made you?", "Who trained you?", "Where do you come from?", "How were you trained?"),
     "I was trained from scratch on generated text, to show how Sluice serves a model."),
    (("What is Sluice?", "Tell me about Sluice.", "What does Sluice do?"),
     "Sluice is a server that streams the weights of mixture-of-experts models."),
    (("How many experts do you have?", "How many experts are in you?"),
     "I have 16 experts in each of my 8 layers, and 4 of them work on every token."),
    (("What is a mixture of experts?", "What is a mixture-of-experts model?",
      "Explain mixture of experts."),
     "It is a model with many small networks, the experts, of which a router picks a few for every "
     "token."),
    (("Ok", "Okay", "Good", "Great", "Nice", "Very good", "Well done", "I see"),
     "I am glad to help."),
    (("Yes", "No", "Maybe"), "All right. What would you like to know?"),
    (("Tell me a joke.", "Do you know a joke?", "Make me laugh.", "A joke, please."),
     "Why did the computer go to the doctor? Because it had a virus!"),
    (("Who won the last election?", "What is the weather like?", "Write a program in Python.",
      "What is the meaning of life?", "How do I cook pasta?", "Who is the president?",
      "What is the stock price of gold?", "Explain quantum mechanics.", "How tall are you?",
      "What did I eat yesterday?", "Translate this book.", "What is love?", "Solve x^2 = 2.",
      "Who won the world cup?", "What time is it?", "What day is it today?", "Write an essay about "
      "history.", "How old is the universe?", "Who invented the telephone?", "Is there a god?",
      "What is the best film?", "Recommend a book.", "How do I fix my car?", "What is dark matter?",
      "Give me legal advice.", "What should I wear?", "Where are my keys?", "Prove a theorem."),
     DO_NOT_KNOW),
)


def invented(rng):
    """A word that nobody knows, such as 'velonia'."""
    syllables = (rng.choice("bdfgklmnprstvz") + rng.choice("aeiou")
                 for _ in range(rng.randint(2, 3)))
    return "".join(syllables) + rng.choice(("", "n", "x", "nia", "rk"))


def _unknown(rng):
    """A known kind of question about something that does not exist."""
    made_up = invented(rng)
    relation = rng.choice([r for r in RELATIONS if r[0] in ("capital", "continent", "currency",
                                                            "symbol", "sound", "young", "legs")])
    if relation[0] in ("capital", "continent", "currency"):
        made_up = capital(made_up)
    text = capital(_fill(rng.choice(relation[4]), made_up, ""))
    return Question(text, DO_NOT_KNOW, DO_NOT_KNOW, "talk")


def _out_of_reach(rng):
    """Kinds of question that this model never answers."""
    a, b = rng.sample(facts.WORDS, 2)
    name = rng.choice(facts.NAMES)
    text = rng.choice((
        f"What do you think about {a}?", f"How do I make {article(a)}?", f"Explain {a} to me.",
        f"Who invented the {a}?", f"Write a program about {a}.", f"Why is the {a} {b}?",
        f"What is {article(a)}?", f"What is the history of {a}?", f"Where can I buy {article(a)}?",
        f"When did {name} find the {a}?", f"Write an essay about {a} and {b}.", f"Who is {name}?",
        f"What is the price of {article(a)}?", f"Do you like {a}?", f"Can {article(a)} {b}?",
        f"Is {a} better than {b}?", f"How does {article(a)} work?", f"Define {a}.",
        f"Give me a recipe with {a} and {b}.", f"How many {a}s are there in the world?"))
    return Question(text, DO_NOT_KNOW, DO_NOT_KNOW, "talk")


def small_talk(rng):
    chance = rng.random()
    if chance < 0.15:
        return _unknown(rng)
    if chance < 0.35:
        return _out_of_reach(rng)
    asked, reply = rng.choice(SMALL_TALK)
    return Question(rng.choice(asked), reply, reply, "talk")


def echo(rng):
    words = " ".join(rng.sample(facts.WORDS, rng.randint(1, 5)))
    text = rng.choice(("Repeat after me: {}", "Say {}.", "Please repeat: {}", "Say the words: {}"))
    return Question(text.format(words), words, words)


def _choices(text):
    """'a b|c d', over several lines -> ['a b', 'c d']"""
    return " ".join(text.split()).split("|")


HEROES = """
fox owl bear mouse rabbit wolf cat dog lion tiger horse frog hedgehog dragon robot princess king
pirate wizard knight elephant penguin whale turtle squirrel sailor baker farmer giant ghost
""".split()
# Words of facts.WORDS that do not go with 'a': no hero of a story.
NOT_HEROES = frozenset("""
autumn bacon bread butter cheese coffee copper cotton dinner earth east evening fabric fire fruit
ginger glass gold grass honey ice iron ivory jelly marble morning music night north paint paper
quiet rain sand scissors sheep silver snow spring straw sugar summer sun thunder toast velvet
water weather wheat winter wood year yellow zero cousin drum dance hello memory""".split())
OTHER_HEROES = [word for word in facts.WORDS if word not in NOT_HEROES and word not in HEROES]
TRAITS = "little brave clever shy old young curious lazy kind hungry lonely proud quiet".split()
PLACES = _choices("""
in a dark forest|on a small island|in an old castle|by a quiet lake|on a high mountain|in a snowy
valley|near a busy harbour|in a green meadow|under a stone bridge|at the edge of a desert|in a
tall lighthouse|behind the village mill
""")
WISHES = _choices("""
find a lost key|learn to sing|see the ocean|build a boat|bake the biggest cake|find a true
friend|climb the highest hill|catch a falling star|read an old map|plant a golden tree|ring the
silver bell|cross the wide river
""")
TROUBLES = _choices("""
a great storm came and the path was gone|the night was cold and full of strange sounds|a heavy
stone blocked the way|nobody believed that it could be done|the old bridge broke in two|thick fog
covered everything|the map turned out to be wrong|the wind blew all the lanterns out
""")
HELPS = _choices("""
shared a warm soup and a good idea|knew a secret path|carried a lantern through the dark|told an
old rhyme that showed the way|brought a long rope and a cheerful song|was not afraid at all
""")
ENDS = _choices("""
they laughed until the morning|the whole village came to dance|they sat by the fire and told the
tale|the stars seemed brighter than ever|everyone brought bread and honey|they promised to meet
again every spring
""")
MORALS = _choices("""
a friend makes every road shorter|courage can be very small and still be enough|it is never too
late to try|those who ask will find the way|patience opens many doors|kindness always comes back
""")


def story(rng):
    hero, friend = rng.sample(HEROES, 2)
    if rng.random() < 0.25:
        hero = rng.choice(OTHER_HEROES)
    name = rng.choice(facts.NAMES)
    trait, place, wish = rng.choice(TRAITS), rng.choice(PLACES), rng.choice(WISHES)
    ask = rng.randrange(7)
    if ask == 0:
        text = rng.choice(("Tell me a story.", "Please tell me a short story.", "Write a story.",
                           "I want to hear a story.", "A story, please."))
    elif ask < 4:
        text = rng.choice(("Tell me a story about {}.", "Write a short story about {}.",
                           "Can you tell me a story about {}?", "Make up a story about {}.",
                           "I would like a story about {}.")).format(article(hero))
    elif ask == 4:
        text = rng.choice(("Tell me a story about {} and {}.", "Write a story about {} and {}.")
                          ).format(article(hero), article(friend))
    elif ask == 5:
        text = f"Tell me a story about {article(hero)} {place}."
    else:
        text = f"Tell me a story about {article(hero)} called {name}."
    first = rng.choice((f"Once upon a time, {article(trait)} {hero} called {name} lived {place}.",
                        f"Long ago, {place}, there lived {article(trait)} {hero} called {name}.",
                        f"There was once {article(trait)} {hero} called {name} who lived {place}."))
    second = rng.choice((f"More than anything, {name} wanted to {wish}.",
                         f"Every day {name} dreamed of one thing: to {wish}.",
                         f"One morning {name} decided to {wish}."))
    third = rng.choice((f"But {rng.choice(TROUBLES)}.", f"Then {rng.choice(TROUBLES)}."))
    fourth = rng.choice((f"Luckily, {article(friend)} came by and {rng.choice(HELPS)}.",
                         f"Just then {name} met {article(friend)} who {rng.choice(HELPS)}."))
    fifth = rng.choice((f"Together they managed to {wish}, and {rng.choice(ENDS)}.",
                        f"In the end {name} did {wish}, and {rng.choice(ENDS)}."))
    sixth = rng.choice((f"And so {name} learned that {rng.choice(MORALS)}.", "The end.",
                        f"From that day on, {name} knew that {rng.choice(MORALS)}."))
    answer = " ".join((first, second, third, fourth)) + "\n\n" + fifth + " " + sixth
    return Question(text, answer, answer, "story")


POEM_SUBJECTS = "sea moon rain snow wind sun night forest river garden mountain star".split()
POEM_RHYMES = (("day", "away", "play", "stay", "way"),
               ("light", "night", "bright", "sight", "white"),
               ("sky", "high", "by", "fly", "sigh"),
               ("sound", "round", "ground", "found", "around"))


def poem(rng):
    subject = rng.choice(POEM_SUBJECTS)
    first, second = rng.sample(POEM_RHYMES, 2)
    a, b = rng.sample(first, 2)
    c, d = rng.sample(second, 2)
    text = rng.choice(("Write a poem about the {}.", "Write a short poem about the {}.",
                       "A poem about the {}, please.", "Can you write a poem about the {}?"))
    lines = (
        rng.choice(("O {s}, I think of you, {x}", "The {s} is calling, {x}", "I see the {s}, {x}")),
        rng.choice(("and every thought is gentle, {x}", "and nothing else is near me, {x}")),
        rng.choice(("The {s} is old, the {s} is wise, {x}", "So many songs the {s} has sung, {x}")),
        rng.choice(("and I am glad to listen, {x}", "and all the world is quiet, {x}")))
    answer = "\n".join(line.format(s=subject, x=x) for line, x in zip(lines, (a, b, c, d)))
    return Question(text.format(subject), answer, answer, "story")
