"""Words of plain English: whoever writes one of them means it, and made no slip in another word.

Mostly short ones stand here: the longer a word is, the less likely is another one a letter away. Those of four letters
and less are never taken for slips themselves, but with an ending ("swim", "swimming"). What a catalogue knows is asked
for before this list is.
"""

from __future__ import annotations

from typing import Final

_WORDS: Final = """
abandon ability above abroad absence accept access accident account accuse achieve across action active actor actual
adapt added address admire admit adopt adult advance advice affair afford afraid after again against agency agent
agree ahead alarm album alcohol alert alien alike alive allow alone along aloud alter although always amazing among
amount amuse ancient angel anger angle angry animal ankle annoy annual answer anxious anyone anyway apart appeal
appear apple apply approve apron arena argue arise armed army around arrange arrest arrive arrow article artist
ashamed aside asleep assist assume attach attack attempt attend attic aunt author autumn avenue average avoid awake
award aware awful awkward bacon badge baker balance ball balloon banana banker barber barely bargain barrel basic
basis basket battle beach beans beard beast beaten beauty became because become before began begin behave behind being
belief believe bell belong below belt bench bend berry beside better beyond bible bigger bikini birth bitter black
blame blank blanket blast blaze bleed blend bless blind block blond blood bloom blossom board boast boats bold bonus
books boost booth border boring borrow bosses bother bottle bottom bought bounce bound bowl boxes brain brake branch
brand brave bread break breath breeze brick bride bridge brief bright bring broad broken broom brother brought brown
brush bubble bucket budget build built bullet bunch burden burger burn burst buses business busy butcher butter button
buyer cabin cabinet cable cactus cakes called calm camel camera camps canal cancel cancer candle candy cannot canoe
canvas capable capital captain caption capture carbon cards career careful cargo carpet carrot carry cartoon carve
castle casual catch cattle caught cause caution ceiling center central centre century cereal certain chain chair chalk
chance change channel chapel chapter charge charity charm chart chase cheap cheat check cheek cheer cheese chef cherry
chess chest chicken chief child china chips choice choose chose chosen church cigar cinema circle circus citizen civil
claim clash class classic clean clear clerk clever click client cliff climate climb clinic clock close closer closet
cloth clothes cloud clown club clumsy coach coast coat cocoa coconut coffee coins cold collar collect college colour
column combine comedy comfort coming comma command common company compare compete complain complete comply concern
concert confirm connect conquer consider consist contact contain content contest context control cooker cookie cooking
copper copy coral corner correct cotton couch cough could council count counter country couple courage course court
cousin cover cowboy crack cradle craft crash crazy cream create creature credit creek crew crime crisis crisp critic
cross crowd crown crucial cruel cruise crush crust culture curious curly current curry curse curtain curve custom
cycle daddy daily damage dance danger dare darker data dates dating daughter dawn deaf dealer death debate debts
decade decent decide deck declare decline deeper deer defeat defend define degree delay delete deliver delta demand
denied dense dentist deny depart depend deposit depth derive desert deserve design desire desk despite dessert destroy
detail detect develop device devil devote dial diamond diary diesel diet differ digital dinner direct dirt dirty
disagree disco discuss disease dish disk display distant ditch divide divorce doctor dollar dolphin domain donate
donkey doors double doubt dozen draft drag dragon drain drama drank drawer drawing drawn dread dream dress drew dried
drift drill drink drive driver drove drown drugs drum drunk ducks during dusty dutch duty eager eagle early earn earth
easily eastern eaten eater edge edition editor educate effect effort eight either elbow elder elect elegant element
else email empire employ empty enable ended enemy energy engage engine enjoy enough ensure enter entire entry envelope
envy equal error escape essay estate ethnic event every everyone evil exact exam example exceed except excess excite
excuse exist exit expand expect expense expert explain explore export expose express extend extent extra extreme
fabric facing factor factory fails faint fairly fairy faith falls false fame family famous fancy farmer fashion faster
fatal father fault favor favour fears feast feather feature feeling fellow felt female fence fever fewer fiber field
fifth fifty fight figure files filled film filter final finally finance finding fine finger finish fired firm first
fishing fitness fixed flags flame flash flat flavor flavour fleet flesh flew flight float flood floor flour flower
fluid flute flying focus folder folks follow fond fool foot force foreign forest forever forget forgive fork formal
format former forth fortune forty forum forward fossil found fountain fourth frame free freedom freeze french fresh
fridge fried friend fright frog front frost frozen fruit fuel fully funny furry future gallery gamble games gaming
gang garage garden garlic gather gave gender general genius gentle gentleman genuine german ghost giant gift ginger
girls given glad glance glass glasses global gloves glow glue goal goat going gold golden golf gone goose gorgeous
govern grace grade grain grand grant grape graph grasp grass grateful grave gravity gray great greedy greek green
greet grew grill grind grocery gross ground group grow grown growth guard guess guest guide guilty guitar gulf habit
hair half hall hammer hand handle handy hang happen happy harbor hard harder hardly harm harmony harsh harvest hate
hated haunt having head heal health healthy heap hear heard heart heat heated heaven heavy heel height held helmet
help helper hence herb herbal heritage hero hidden hide high higher highly hiking hill hints hire history hobby hold
holder hole holiday hollow holy honest honey honor hook hope hopeless horn horror horse hospital host hosted hotel
hour hours house human humble humor hundred hunger hungry hunt hunter hurry hurt husband ideal ideas ignore illegal
image imagine impact import impose improve inches include income indeed index indoor infant inform inherit initial
injure inner input insect inside insist inspire install instant instead intend intent interest invade invent invest
invite iron island issue item jacket jail jealous jelly jewel join joined joint joke jolly journal journey judge juice
juicy jumbo jump jumped junior junk jury justice keen keeper kettle keys kick kidding kill killer kind kinds king kiss
kitchen kitten knee knew knife knight knit knock know known label labor labour lack ladder ladies lady lake lamb lamp
land lane language large larger laser later latest latter laugh laundry lawyer layer lazy leader league leaning learn
lease least leather leave leaves lecture left legal legend lemon lend length lens less lesson letter level liar
liberty library license lies life lift light liked likely limit linen lines link lion lips liquid list listen
literally litter little lively liver living loan local locate lock lodge logic lonely long longer looked loose lord
lose loser loss lost loud lounge love loved lovely lover lower loyal luck lucky lumber lunch lungs luxury machine
madam made magic magnet mail main mainly major maker makeup male mall manage manner manual many maple march margin
marine mark marker market marriage married marry mask mass master match mate material matter maybe mayor meal mean
meaning means meant measure meat medal media medical medium meet meeting melody melon melt member memory men mental
mention menu mercy mere merely merit merry mess message metal meter method middle might mild mile military milk mill
million mind miner mineral minor mint minus minute mirror misery miss missed missing mission mistake mix mixed mixer
mobile mode model modern modest moment monday money monitor monkey monster month mood moon moral more morning mostly
mother motion motor mount mountain mouse mouth move moved movie moving much muddy murder muscle museum mushroom music
must mutual myself mystery naked name named narrow nasty nation native natural nature naughty near nearby nearly neat
neck need needed needle neither nephew nerve nervous nest never newer news nice niece night nine noble nobody noise
noisy none noodle noon normal north nose note noted nothing notice novel nowhere number nurse object observe obtain
obvious occasion occur ocean odd offense offer office officer often oil older olive once onion online only onto open
opened opera operate opinion oppose option orange orbit order ordinary organ organic origin other ought ounce outcome
outdoor outer outfit output outside oven over owner oxygen oyster package packed paddle page paid pain painful paint
painter pair palace pale palm panel panic pants paper parade parent park parking part partly partner party pass
passage passion past pasta paste pastry patch path patient pattern pause payment peace peach peak peanut pear pearl
pencil people pepper perfect perform perfume perhaps period permit person phone photo phrase piano pick picnic picture
piece pigeon pile pilot pinch pine pink pipe pirate pitch pizza place plain plan plane planet plant plastic plate
platform play player plaza pleasant please pleased plenty plot plug plus pocket poem poet point poison polar pole
police policy polish polite pond pool poor popular porch port position positive possess possible post poster potato
pound pour powder power praise pray prayer prefer prepare present preserve press pretend pretty prevent previous price
pride priest primary prime prince print prior prison private prize problem process produce product profile profit
program project promise promote prompt proof proper protect proud prove provide public pull pulse punch punish pupil
puppy purchase pure purple purpose pursue push puzzle quality quantity quarter queen quest question queue quick
quickly quiet quit quite quote rabbit race racing radio rail rain rainbow rainy raise raised ranch random range rank
rapid rare rarely rate rather ratio reach react read reader ready real reality realize really reason rebel recall
receipt receive recent recipe record recover recycle reduce refer reflect refuse regard region regret regular reject
relate relax release relief religion rely remain remark remember remind remote remove rent repair repeat replace reply
report request require rescue research reserve resist resort respect respond rest restore result resume retail retain
retire return reveal revenge review reward rhythm ribbon rice rich ride rider ridge right ring ripe rise risk rival
river road roast robber robin robot rock rocket role roll roman romance roof room root rope rose rotten rough round
route routine royal rubber ruin rule ruler rural rush sacred sadly safe safely safety sail sailor saint salad salary
sale salmon salon salt salty sample sand sandwich sandy sauce saucer sausage save saving scale scan scare scared scarf
scene scent schedule scheme school science score scout scream screen screw script search season seat second secret
section secure seed seek seem seldom select self sell seller send senior sense sensible sentence separate series
serious servant serve service session settle seven several severe shade shadow shake shall shallow shame shape share
shark sharp shave sheep sheet shelf shell shelter shift shine shiny ship shirt shock shoe shoot shop shore short
shorts should shoulder shout show shower shown shrimp shut sick side sigh sight sign signal silence silent silk silly
silver similar simple simply since sing singer single sink sister site situation sixth size skate skill skin skirt
skull sky slave sleep sleepy sleeve slice slide slight slim slip slope slow slowly small smart smash smell smile smoke
smoked smooth snack snake snow snowy soap soccer social society sock soft soften soil soldier solid solve some somehow
someone sorry sort soul sound soup sour source south space spare spark speak speaker special species specific speech
speed spell spend spent spice spicy spider spike spill spin spirit spite splash split spoil spoke spoken spoon sport
spot spray spread spring square squeeze stable stack staff stage stain stairs stamp stand standard star stare start
starve state statement station statue status stay steady steak steal steam steel steep steer step stick sticky stiff
still sting stock stolen stomach stone stood stool stop store storm stormy story stove straight strange stranger strap
straw stream street strength stress stretch strict strike string strip stroke strong struggle stuck student studio
study stuff stupid style subject submit succeed success such sudden suffer sugar suggest suit suitable summer summit
sunday sunny sunset super supper supply support suppose sure surely surface surgery surprise survey survive suspect
sweat sweep sweet swift swim swimming swing switch sword symbol system table tackle tail tailor take taken talent
tales talk taller tank tape target task taste tasted tasty taught taxes taxi teach teacher team tears tease teens
teeth tell temper temple tenant tend tender tennis tense term terrible test text thank theatre their theirs theme
theory there these thick thief thin thing think third thirsty thirty this those though thought thousand thread threat
three threw throat throne through throw thrown thumb thunder ticket tidy tiger tight tile till timber time timer times
tiny tire tired tissue title toast today together toilet tomato tomorrow tone tongue tonight tool tooth topic topics
torch total touch tough tour tourist toward towel tower town toxic track trade tradition traffic trail train trainer
transfer travel tray treasure treat treaty tree trend trial tribe trick tricky tried trip trouble truck true truly
trumpet trunk trust truth tube tulip tune tunnel turkey turn turtle tutor twelve twenty twice twin twist type typical
ugly uncle under unhappy uniform union unique unit unite universe unknown unless until upper upset upstairs urban urge
urgent usual usually vacant vague valid valley value vanilla vanish variety various vast vegan vehicle velvet venture
verb verse version very vessel victim victory video view village vinegar violin virtue virus visible vision visit
visitor visual vital voice volume volunteer vote voter voyage wagon waist wait waiter waitress wake walk walker wall
wallet walnut wander want warm warmer warn warning wash waste watch water wave weak wealth weapon wear weather weave
wedding weed week weekend weigh weight weird welcome welfare west western whale wheat wheel when where whether which
while whisper whistle white whole whose wide widely widow wife wild will willing window wine wing winner winter wipe
wire wisdom wise wish witch with within without witness wolf woman women wonder wood wooden wool word work worker
world worm worried worry worse worst worth would wound wrap wreck wrist write writer wrong wrote yacht yard yeah year
yellow yesterday yield yoga yogurt young younger yours youth zebra zero
"""
_PLAIN: Final = frozenset(_WORDS.split())
# What a plain word may end in: "spends", "spending", "sweetest".
_ENDINGS: Final = ("s", "es", "d", "ed", "r", "er", "est", "ly", "ing")


def is_plain_english(word: str) -> bool:
    """Whether a folded word is in common use, by itself or with an ending."""
    if word in _PLAIN:
        return True
    stems = (word.removesuffix(ending) for ending in _ENDINGS if word.endswith(ending))
    return any(stem in _PLAIN or f"{stem}e" in _PLAIN or _single(stem) in _PLAIN for stem in stems)


def _single(stem: str) -> str:
    """Without the letter that an ending doubles: swim, swimming."""
    return stem[:-1] if stem[-1:] == stem[-2:-1] else stem
