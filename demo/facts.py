"""Tables of facts and word lists that demo/make_data.py asks about.

Plain data, no logic beyond splitting strings. Everything here was written for this model; a fact
is a (subject, answer) pair and make_data.py holds the phrasings.
"""


def _pairs(text):
    """'a:b, c:d' -> [('a', 'b'), ('c', 'd')], in the order written."""
    out = []
    for item in text.replace("\n", " ").split(","):
        item = item.strip()
        if item:
            key, value = item.split(":")
            out.append((key.strip(), value.strip()))
    return out


def _words(text):
    return text.split()


CAPITALS = _pairs("""
France:Paris, Germany:Berlin, Italy:Rome, Spain:Madrid, Portugal:Lisbon, Austria:Vienna,
Switzerland:Bern, Belgium:Brussels, the Netherlands:Amsterdam, Denmark:Copenhagen,
Sweden:Stockholm, Norway:Oslo, Finland:Helsinki, Iceland:Reykjavík, Ireland:Dublin,
the United Kingdom:London, Poland:Warsaw, the Czech Republic:Prague, Slovakia:Bratislava,
Hungary:Budapest, Romania:Bucharest, Bulgaria:Sofia, Greece:Athens, Turkey:Ankara,
Croatia:Zagreb, Serbia:Belgrade, Slovenia:Ljubljana, Albania:Tirana, Estonia:Tallinn,
Latvia:Riga, Lithuania:Vilnius, Ukraine:Kyiv, Belarus:Minsk, Moldova:Chișinău, Russia:Moscow,
Georgia:Tbilisi, Armenia:Yerevan, Egypt:Cairo, Morocco:Rabat, Algeria:Algiers, Tunisia:Tunis,
Libya:Tripoli, Sudan:Khartoum, Ethiopia:Addis Ababa, Kenya:Nairobi, Uganda:Kampala,
Rwanda:Kigali, Ghana:Accra, Nigeria:Abuja, Senegal:Dakar, Mali:Bamako, Angola:Luanda,
Zambia:Lusaka, Zimbabwe:Harare, Namibia:Windhoek, Madagascar:Antananarivo, Cameroon:Yaoundé,
Somalia:Mogadishu, Mozambique:Maputo, China:Beijing, Japan:Tokyo, South Korea:Seoul,
North Korea:Pyongyang, Mongolia:Ulaanbaatar, India:New Delhi, Pakistan:Islamabad,
Bangladesh:Dhaka, Nepal:Kathmandu, Bhutan:Thimphu, Thailand:Bangkok, Vietnam:Hanoi,
Laos:Vientiane, Cambodia:Phnom Penh, Indonesia:Jakarta, Malaysia:Kuala Lumpur,
the Philippines:Manila, Iran:Tehran, Iraq:Baghdad, Syria:Damascus, Lebanon:Beirut,
Jordan:Amman, Saudi Arabia:Riyadh, Yemen:Sanaa, Oman:Muscat, Qatar:Doha,
Afghanistan:Kabul, Kazakhstan:Astana, Uzbekistan:Tashkent, Canada:Ottawa,
the United States:Washington, Mexico:Mexico City, Guatemala:Guatemala City, Cuba:Havana,
Jamaica:Kingston, Haiti:Port-au-Prince, Honduras:Tegucigalpa, Nicaragua:Managua,
Costa Rica:San José, Panama:Panama City, Colombia:Bogotá, Venezuela:Caracas, Ecuador:Quito,
Peru:Lima, Bolivia:Sucre, Chile:Santiago, Argentina:Buenos Aires, Uruguay:Montevideo,
Paraguay:Asunción, Brazil:Brasília, Australia:Canberra, New Zealand:Wellington, Fiji:Suva
""")

CONTINENTS = [(country, continent) for continent, countries in (
    ("Europe", """France Germany Italy Spain Portugal Austria Switzerland Belgium Denmark Sweden
     Norway Finland Iceland Ireland Poland Hungary Romania Bulgaria Greece Croatia Serbia
     Slovenia Estonia Latvia Lithuania Ukraine"""),
    ("Africa", """Egypt Morocco Algeria Tunisia Libya Sudan Ethiopia Kenya Uganda Rwanda Ghana
     Nigeria Senegal Mali Angola Zambia Zimbabwe Namibia Madagascar Cameroon"""),
    ("Asia", """China Japan Mongolia India Pakistan Bangladesh Nepal Bhutan Thailand Vietnam Laos
     Cambodia Malaysia Iran Iraq Jordan Oman Qatar"""),
    ("North America", "Canada Mexico Cuba Jamaica Panama Guatemala"),
    ("South America", """Colombia Venezuela Ecuador Peru Bolivia Chile Argentina Uruguay Paraguay
     Brazil"""),
) for country in countries.split()]

CURRENCIES = _pairs("""
France:the euro, Germany:the euro, Japan:the yen, China:the yuan, India:the rupee,
the United Kingdom:the pound, the United States:the dollar, Switzerland:the franc,
Poland:the zloty, Sweden:the krona, Norway:the krone, Denmark:the krone, Russia:the rouble,
Mexico:the peso, Brazil:the real, Turkey:the lira, Thailand:the baht, Vietnam:the dong,
Hungary:the forint, South Korea:the won, Israel:the shekel, Egypt:the pound, Kenya:the shilling
""")

SYMBOLS = _pairs("""
hydrogen:H, helium:He, lithium:Li, beryllium:Be, boron:B, carbon:C, nitrogen:N, oxygen:O,
fluorine:F, neon:Ne, sodium:Na, magnesium:Mg, aluminium:Al, silicon:Si, phosphorus:P, sulfur:S,
chlorine:Cl, argon:Ar, potassium:K, calcium:Ca, titanium:Ti, chromium:Cr, manganese:Mn, iron:Fe,
cobalt:Co, nickel:Ni, copper:Cu, zinc:Zn, arsenic:As, bromine:Br, krypton:Kr, silver:Ag, tin:Sn,
iodine:I, xenon:Xe, barium:Ba, tungsten:W, platinum:Pt, gold:Au, mercury:Hg, lead:Pb,
bismuth:Bi, radon:Rn, radium:Ra, thorium:Th, uranium:U, plutonium:Pu
""")

# The first twenty in the order of their atomic number.
ATOMIC_ORDER = [name for name, _ in SYMBOLS[:20]]

ANIMAL_SOUNDS = _pairs("""
dog:barks, cat:meows, cow:moos, sheep:bleats, horse:neighs, pig:grunts, duck:quacks, lion:roars,
wolf:howls, frog:croaks, snake:hisses, bee:buzzes, owl:hoots, rooster:crows, mouse:squeaks,
donkey:brays, elephant:trumpets, crow:caws, pigeon:coos, turkey:gobbles, cricket:chirps
""")

ANIMAL_YOUNG = _pairs("""
dog:puppy, cat:kitten, cow:calf, sheep:lamb, horse:foal, pig:piglet, duck:duckling, goose:gosling,
hen:chick, lion:cub, bear:cub, wolf:pup, fox:kit, deer:fawn, goat:kid, kangaroo:joey, frog:tadpole,
swan:cygnet, owl:owlet, eagle:eaglet, elephant:calf, whale:calf, seal:pup, rabbit:kit, hare:leveret
""")

ANIMAL_LEGS = _pairs("""
dog:four, cat:four, cow:four, horse:four, hen:two, duck:two, eagle:two, spider:eight, ant:six,
bee:six, beetle:six, butterfly:six, crab:ten, lobster:ten, snake:no, fish:no, frog:four,
lizard:four, elephant:four, ostrich:two, scorpion:eight, fly:six, worm:no
""")

ANIMAL_HOMES = _pairs("""
bee:hive, bird:nest, rabbit:burrow, lion:den, spider:web, horse:stable, dog:kennel, pig:sty,
ant:anthill, beaver:lodge, eagle:eyrie, cow:barn, fox:den, hen:coop, badger:sett, otter:holt
""")

ANIMAL_GROUPS = _pairs("""
wolves:pack, sheep:flock, cows:herd, fish:school, lions:pride, bees:swarm, birds:flock,
elephants:herd, whales:pod, ants:colony, geese:gaggle, crows:murder, owls:parliament,
puppies:litter, dolphins:pod, horses:herd, monkeys:troop
""")

THING_COLOURS = _pairs("""
grass:green, the sky on a clear day:blue, snow:white, coal:black, a ripe banana:yellow,
a ripe tomato:red, a carrot:orange, a lemon:yellow, blood:red, milk:white, an emerald:green,
a ruby:red, a sapphire:blue, an elephant:grey, chocolate:brown, a flamingo:pink, a plum:purple,
a raven:black, a strawberry:red, a polar bear:white, a sunflower:yellow, a cucumber:green,
an aubergine:purple, a fire engine:red, charcoal:black, a swan:white, a pumpkin:orange
""")

COLOUR_MIXES = _pairs("""
red+yellow:orange, blue+yellow:green, red+blue:purple, red+white:pink, black+white:grey,
blue+white:light blue, red+green:brown, black+red:dark red, green+white:light green
""")

OPPOSITES = _pairs("""
hot:cold, big:small, tall:short, fast:slow, old:young, happy:sad, light:dark, hard:soft, wet:dry,
full:empty, open:closed, clean:dirty, rich:poor, strong:weak, early:late, near:far, high:low,
loud:quiet, thick:thin, wide:narrow, deep:shallow, heavy:light, up:down, left:right,
in:out, day:night, black:white, good:bad, true:false, first:last, love:hate, war:peace, win:lose,
buy:sell, push:pull, give:take, begin:end, start:stop, laugh:cry, remember:forget, arrive:leave,
always:never, everything:nothing, above:below, before:after, inside:outside, north:south,
east:west, summer:winter, brave:afraid, sharp:blunt, smooth:rough, sweet:bitter, cheap:expensive,
easy:difficult, safe:dangerous, alive:dead, awake:asleep, asleep:awake, cold:hot, small:big,
slow:fast, sad:happy, dry:wet, empty:full, dirty:clean, poor:rich, weak:strong, late:early,
far:near, low:high, quiet:loud, thin:thick, narrow:wide, down:up, night:day, bad:good,
false:true, last:first, never:always, winter:summer, expensive:cheap, difficult:easy
""")

PLURALS = _pairs("""
mouse:mice, child:children, foot:feet, tooth:teeth, goose:geese, man:men, woman:women, ox:oxen,
sheep:sheep, fish:fish, leaf:leaves, knife:knives, wolf:wolves, wife:wives, life:lives, box:boxes,
city:cities, baby:babies, berry:berries, tomato:tomatoes, potato:potatoes, bus:buses, fox:foxes,
dish:dishes, church:churches, cat:cats, dog:dogs, tree:trees, house:houses, book:books,
cactus:cacti, person:people, half:halves, shelf:shelves, hero:heroes, lady:ladies, story:stories,
loaf:loaves
""")

PAST_TENSES = _pairs("""
go:went, see:saw, eat:ate, drink:drank, run:ran, sing:sang, swim:swam, write:wrote, read:read,
speak:spoke, take:took, give:gave, come:came, begin:began, break:broke, bring:brought, buy:bought,
catch:caught, choose:chose, draw:drew, drive:drove, fall:fell, feel:felt, fight:fought, find:found,
fly:flew, forget:forgot, grow:grew, have:had, hear:heard, hold:held, keep:kept, know:knew,
leave:left, lose:lost, make:made, meet:met, pay:paid, ride:rode, say:said, sell:sold, send:sent,
sit:sat, sleep:slept, stand:stood, teach:taught, tell:told, think:thought, throw:threw, wear:wore,
win:won, walk:walked, talk:talked, play:played, jump:jumped, look:looked, carry:carried,
stop:stopped
""")

SHAPES = _pairs("""
triangle:three, square:four, rectangle:four, pentagon:five, hexagon:six, heptagon:seven,
octagon:eight, nonagon:nine, decagon:ten, rhombus:four, trapezium:four, dodecagon:twelve
""")

PLANETS = _words("Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune")
ORDINALS = _words("""first second third fourth fifth sixth seventh eighth ninth tenth eleventh
twelfth""")

# Foreign numbers and words, by language.
TRANSLATIONS = {
    "French": _pairs("""one:un, two:deux, three:trois, four:quatre, five:cinq, six:six,
        seven:sept, eight:huit, nine:neuf, ten:dix, hello:bonjour, thank you:merci,
        goodbye:au revoir, water:eau, bread:pain, cheese:fromage, house:maison, dog:chien,
        cat:chat, book:livre, red:rouge, blue:bleu, summer:été, coffee:café"""),
    "German": _pairs("""one:eins, two:zwei, three:drei, four:vier, five:fünf, six:sechs,
        seven:sieben, eight:acht, nine:neun, ten:zehn, hello:hallo, thank you:danke,
        goodbye:auf Wiedersehen, water:Wasser, bread:Brot, cheese:Käse, house:Haus, dog:Hund,
        cat:Katze, book:Buch, red:rot, blue:blau, summer:Sommer, coffee:Kaffee"""),
    "Spanish": _pairs("""one:uno, two:dos, three:tres, four:cuatro, five:cinco, six:seis,
        seven:siete, eight:ocho, nine:nueve, ten:diez, hello:hola, thank you:gracias,
        goodbye:adiós, water:agua, bread:pan, cheese:queso, house:casa, dog:perro, cat:gato,
        book:libro, red:rojo, blue:azul, summer:verano, coffee:café"""),
    "Italian": _pairs("""one:uno, two:due, three:tre, four:quattro, five:cinque, six:sei,
        seven:sette, eight:otto, nine:nove, ten:dieci, hello:ciao, thank you:grazie,
        goodbye:arrivederci, water:acqua, bread:pane, cheese:formaggio, house:casa, dog:cane,
        cat:gatto, book:libro, red:rosso, blue:blu, summer:estate, coffee:caffè"""),
}

# Questions with one wording per entry: (subject of the question as a noun phrase, answer).
MISC = _pairs("""
the largest planet in the solar system:Jupiter, the smallest planet in the solar system:Mercury,
the planet closest to the Sun:Mercury, the planet farthest from the Sun:Neptune,
the planet with the famous rings:Saturn, the red planet:Mars,
the star nearest to the Earth:the Sun, the largest ocean:the Pacific Ocean,
the largest continent:Asia, the smallest continent:Australia,
the highest mountain on Earth:Mount Everest, the longest river in South America:the Amazon,
the largest hot desert:the Sahara, the largest island:Greenland,
the largest land animal:the elephant, the largest animal:the blue whale,
the fastest land animal:the cheetah, the tallest animal:the giraffe, the largest bird:the ostrich,
the slowest mammal:the sloth, the chemical formula of water:H2O,
the freezing point of water in degrees Celsius:0,
the boiling point of water in degrees Celsius:100, the first month of the year:January,
the last month of the year:December, the shortest month of the year:February,
the first letter of the alphabet:A, the last letter of the alphabet:Z,
the smallest prime number:2, the number of bones in an adult human:206,
the number of planets in the solar system:8, the number of continents:7,
the number of colours in a rainbow:7, the number of players in a football team:11,
the number of strings on a violin:4, the number of keys on a piano:88,
the number of squares on a chessboard:64, the number of letters in the English alphabet:26,
the number of teeth of an adult human:32, the number of legs of a spider:8,
the number of sides of a cube:6, the number of sides of a die:6,
the hardest natural substance:diamond, the lightest element:hydrogen,
the gas that plants take in:carbon dioxide, the gas that we need to breathe:oxygen,
the organ that pumps blood:the heart, the organ that we think with:the brain,
the largest organ of the body:the skin, the language spoken in Brazil:Portuguese,
the language spoken in Mexico:Spanish, the language spoken in Austria:German,
the language spoken in Egypt:Arabic, the author of Hamlet:William Shakespeare,
the painter of the Mona Lisa:Leonardo da Vinci, the author of Faust:Goethe,
the author of Don Quixote:Cervantes, the composer of the Ninth Symphony:Beethoven,
the frozen form of water:ice, the natural satellite of the Earth:the Moon,
the metal that is liquid at room temperature:mercury,
the process by which plants make food:photosynthesis, the study of living things:biology,
the study of the stars:astronomy, the study of numbers:mathematics,
the person who flies a plane:a pilot, the person who bakes bread:a baker,
the person who puts out fires:a firefighter, the person who treats sick animals:a vet,
the person who repairs pipes:a plumber, the person who grows crops:a farmer
""")

WEEKDAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = _words("""January February March April May June July August September October November
December""")
MONTH_DAYS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]

SEASONS = [("January", "winter"), ("February", "winter"), ("April", "spring"), ("May", "spring"),
           ("July", "summer"), ("August", "summer"), ("October", "autumn"), ("November", "autumn")]

# Words for sorting, spelling and counting: common, lower case, no two alike but for case.
WORDS = _words("""
apple arrow autumn bacon badge baker banana basket beach bean bear bell berry bird bottle bread
brick bridge brush bucket butter button cabin cake camel candle carpet carrot castle chair cheese
cherry circle clock cloud coat coffee computer copper cotton cousin cradle crown curtain daisy
dance desert dinner dolphin door dragon dream drum eagle earth east echo elbow engine evening
fabric falcon family farmer feather fence field finger fire flag flower forest fork fossil fox
friend frog fruit garden ghost giant ginger giraffe glass glove goat gold goose grape grass guitar
hammer harbour hawk heart hello hill honey horse hotel house hunter ice igloo insect iron island
ivory jacket jelly jewel jungle kettle key kitchen kite knight ladder lake lamp leaf lemon letter
library lion lizard lobster magnet map marble market meadow melon memory mirror monkey moon
morning mountain mouse music napkin needle nest night north nurse oak ocean olive onion orange
otter owl oyster paint palace panda paper parrot peach peanut pearl pencil pepper piano picture
pillow pilot planet plate pocket pond potato puzzle queen quiet rabbit radio rain raven ribbon
river robin rocket rose sailor salmon sand school scissors shadow sheep shell ship silver sister
snow soldier spider spoon spring squirrel star stone storm straw strawberry street sugar summer
sun swan table teacher temple thunder tiger toast tomato tower train tree trumpet tulip tunnel
turtle umbrella uncle valley velvet village violin voice wagon walnut water weather whale wheat
wheel window winter wolf wood yard year yellow zebra zero
""")

ITEMS = _words("""
apples pears plums books cards coins stamps marbles pencils shells stones buttons eggs cookies
flowers stickers balls carrots lemons oranges
""")

NAMES = _words("""
Anna Ben Clara David Emma Felix Grace Henry Ida Jack Kate Leo Maria Noah Olga Paul Rosa Sam Tom
Uma Victor Wendy Yara Zoe Alice Bruno Carla Dora Erik Fiona George Hanna Ivan Julia Karl Lucy Max
Nina Oscar Peter
""")

ONES = _words("""zero one two three four five six seven eight nine ten eleven twelve thirteen
fourteen fifteen sixteen seventeen eighteen nineteen""")
TENS = ["", ""] + _words("twenty thirty forty fifty sixty seventy eighty ninety")


def number_words(n):
    """English words for 0 <= n <= 999."""
    if n < 20:
        return ONES[n]
    if n < 100:
        return TENS[n // 10] + ("-" + ONES[n % 10] if n % 10 else "")
    rest = n % 100
    return ONES[n // 100] + " hundred" + (" and " + number_words(rest) if rest else "")


def roman(n):
    """Roman numeral for 1 <= n <= 399."""
    out = ""
    for value, text in ((100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"), (9, "IX"),
                        (5, "V"), (4, "IV"), (1, "I")):
        while n >= value:
            out += text
            n -= value
    return out
