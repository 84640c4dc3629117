#!/usr/bin/env python3
"""Renders small templates with Jinja2 and prints the results as JSON.

    pip install jinja2==3.1.6
    python3 model/tests/data/jinja/render.py SEED COUNT > model/tests/data/jinja/rendered.json

The settings are those of transformers. "cases" are written by hand and must render in the same way here. "random" are
COUNT templates of a generator: there, a rejection by name is allowed, but no other text. Other seeds make other templates.
"""
import copy, datetime, json, random, sys, warnings

import jinja2, jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

warnings.simplefilter("ignore")
R = random.Random(int(sys.argv[1]))
COUNT = int(sys.argv[2])
VARIABLES = {'messages': [{'role': 'user', 'content': 'hi there'}, {'role': 'assistant', 'content': 'yes\n', 'n': 1.5}, {'role': 'user', 'content': 'Über <b> \'q\' "d"', 'x': None, 't': True}], 'a': 1, 'b': 'text', 'l': [3, 1, 2], 'd': {'k': 'v', 'items': 7, 'Z': [1]}, 'nul': None, 's': 'a,b,c'}


class Generation(jinja2.ext.Extension):
    """The tag that transformers adds: its body is a call block."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("body"), [], [], body).set_lineno(line)

    def body(self, caller):
        return caller()


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.TemplateError(message)


environment = ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
)
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = raise_exception
environment.globals["strftime_now"] = datetime.datetime(2026, 2, 3).strftime


def rendered(template):
    try:
        return {"template": template, "text": environment.from_string(template).render(**copy.deepcopy(VARIABLES))}
    except Exception as error:
        return {"template": template, "failed": type(error).__name__}


CASES = [
    '{% set ns = namespace(n=0) %}{% macro f() %}{% set ns.n = 7 %}{% endmacro %}{{ f() }}{{ ns.n }}',
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% generation %}{% if m.role == 'user' %}{% set ns.n = 5 %}{% endif %}x{% endgeneration %}{% endfor %}{{ ns.n }}",
    '{% set a = 5 %}{% with a=1, b=a %}{{ b }}{{ a }}{% endwith %}{{ a }}',
    '{{ "\\U0001F600" }}{{ "\\N{WHITE SMILING FACE}\\x41\\101\\u00e9\\q\\a|" }}{{ \'\\é\' }}',
    '{{ "abc".partition("b") | join("-") }}{{ "%s" % "a" }}{{ "a,b,c".rsplit(",", 1) | join("|") }}{{ "abc".removeprefix("a") }}',
    '{{ "%5d|%-5d|%05d|%+d|% d|%x|%X|%#x|%o|%#o" % (42,42,42,42,42,255,255,255,8,8) }}',
    '{{ "%s %r %a" % ("é", "é\'", "é") }}{{ "%.3f %e %g %g %g" % (3.14159, 12345.678, 0.0001, 1e10, 123456789.0) }}',
    '{{ "%(a)s %(b)05.1f" % {"a": 1, "b": 2.25} }}{{ "%c%c" % (65, "z") }}{{ "%%" % () }}{{ "%*d" % (5, 3) }}',
    '{{ "{} {}".format(1, "b") }}{{ "{0}{1}{0}".format("a","b") }}{{ "{x:>5}|{x:<5}|{x:^5}|{y:+.2f}|{y:e}".format(x="a", y=2.5) }}',
    '{{ "{:,}|{:_}|{:08,}|{:b}|{:#x}|{:%}|{:.1%}".format(1234567, 1234567, 1234, 5, 255, 0.5, 0.123) }}',
    '{{ "{0.k} {0[k]} {1[1]}".format(d, l) }}{{ "{!r:>6}".format("a") }}{{ "{:{w}}".format("a", w=4) }}{{ "{:{}}".format("a", 4) }}',
    '{{ [1, 2.0, "a\'b", none, true, [1], (1,), (), {"a": 1}] }}',
    "{{ d.items() | list }}{{ d['items'] }}{{ d.keys() }}{{ d.Z }}{{ d.nope is defined }}",
    '{% for x in l %}{{ loop.index }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.previtem }}{{ loop.nextitem }},{% endfor %}',
    '{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}{{ loop.last }} {% else %}none{% endfor %}',
    '{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% else %}E{% endfor %}',
    '{% for x in l %}{% break %}{% else %}E{% endfor %}|{% for x in l %}{% continue %}{% else %}E{% endfor %}',
    '{% macro f(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{{ varargs }}{{ kwargs }}{{ caller is defined }}{% endmacro %}{{ f(1) }}{{ f(1,2,3,4,5,x=6) }}{{ f.name }}{{ f.arguments }}{{ f.catch_kwargs }}{{ f.catch_varargs }}{{ f.caller }}',
    '{% macro f(x) %}[{{ caller(x, 2) }}]{% endmacro %}{% call(p, q) f(1) %}{{ p }}-{{ q }}{% endcall %}',
    "{% set c = cycler('a','b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }}",
    "{% set j = joiner('|') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}",
    "{{ [1,2,3]|sum }}{{ [3,1,2]|sort }}{{ ['b','A']|sort }}{{ l|max }}{{ l|min }}{{ l|first }}{{ l|last }}{{ l|length }}{{ l|reverse|list }}",
    "{{ messages|map(attribute='role')|join(',') }}{{ messages|selectattr('role','equalto','user')|list|length }}{{ messages|rejectattr('n','defined')|map(attribute='content')|list }}",
    "{{ messages|groupby('role') }}{% for g in messages|groupby('role') %}{{ g.grouper }}{{ g.list|length }}{{ g[0] }}{% endfor %}",
    '{{ "hello world-foo bar"|title }}{{ "hELLO wORLD"|capitalize }}{{ "hello wOrld\'s"|title }}{{ "hello wOrld\'s".title() }}',
    '{{ b|center(10) }}|{{ "foo bar baz qux"|truncate(9) }}{{ "foo bar baz qux"|truncate(9, True) }}|{{ "a\\nb\\n\\nc"|indent }}|{{ "a\\nb"|indent(2, true) }}',
    "{{ 42.55|round }}{{ 42.55|round(1,'floor') }}{{ 2.5|round }}{{ 3.5|round }}{{ 42|round }}{{ 1234.5678|round(2) }}{{ 42.1|round(method='ceil') }}",
    '{{ "42.7"|int }}{{ "x"|int(5) }}{{ "0x1f"|int(base=16) }}{{ "1_000"|int }}{{ "1e3"|float }}{{ " 12 "|int }}',
    '{{ 7 // 2 }}{{ -7 // 2 }}{{ 7 % -3 }}{{ -7 % 3 }}{{ 2 ** 10 }}{{ 7 / 2 }}{{ 6 / 2 }}{{ 2 ** -1 }}{{ -2 ** 2 }}{{ 2 ** 3 ** 2 }}{{ 7.5 // 2 }}{{ -7.5 % 2 }}',
    "{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 'a' in 'abc' }}{{ 1 not in l }}{{ 'k' in d }}{{ not a }}{{ a and b }}{{ nul or 'x' }}",
    "{{ undefinedvar }}{{ undefinedvar is defined }}{{ undefinedvar|default('d') }}{{ ''|default('x', true) }}{{ undefinedvar ~ 'x' }}",
    '{{ l[1:] }}{{ l[::-1] }}{{ b[1:3] }}{{ b[-1] }}{{ b[::2] }}{{ l[5] }}{{ l[-5:2] }}{{ b[10:] }}',
    '{% set x %}a{{ a }}b{% endset %}{{ x|upper }}{% set y | upper %}abc{% endset %}{{ y }}{% filter upper|lower|title %}heLLo{% endfilter %}',
    '{{ range(3) }}{{ range(3)|list }}{{ range(1,10,3)|list }}{{ range(5,0,-2)|list }}',
    "{{ {'b':1,'a':2}|dictsort }}{{ {'b':1,'a':2}|dictsort(by='value') }}{{ {'b':1}|items|list }}{{ {'a':1}.get('a') }}{{ {'a':1}.get('x', 3) }}",
    '{{ d|tojson }}{{ d|tojson(indent=2) }}{{ {"b":1,"a":[1,2.5,none,true,"é\\n"]}|tojson(sort_keys=true, ensure_ascii=true, separators=(\',\',\':\')) }}',
    '  {% if true %}\n  x\n  {%- endif %}\n  {%+ if true %}y{% endif %}\n {# c #}\nz',
    "a {{- ' b ' -}} c {%- if true -%} d {%- endif -%} e {#- x -#} f",
    '{% raw %}{{ x }}{% endraw %}{%- raw -%} {% y %} {%- endraw -%} z',
    '{% for a, b in d.items() %}{{ a }}={{ b }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}',
    '{% for x in [[1,[2]],[3]] recursive %}{% if x is iterable %}<{{ loop(x) }}>{% else %}{{ x }}:{{ loop.depth }}{% endif %}{% endfor %}',
    '{{ "a b  c ".split() }}{{ " a b c ".split(None,1) }}{{ " a b c ".rsplit(None,1) }}{{ "a,b,,c".split(",") }}{{ "a\\nb\\r\\nc\\n".splitlines() }}{{ "a\\nb\\n".splitlines(true) }}',
    '{{ "abc".center(8,\'*\') }}{{ "abc".center(7) }}{{ "ab".center(7) }}{{ "abc".ljust(5,\'-\') }}{{ "abc".rjust(5) }}{{ "-42".zfill(5) }}{{ "a\\tb".expandtabs(4) }}',
    '{{ "Hello".swapcase() }}{{ "hello world".title() }}{{ "ß".upper() }}{{ "ǆ".title() }}{{ "straße".casefold() }}{{ "ΑΣ".lower() }}{{ "ﬁ".capitalize() }}',
    '{{ "abcabc".find("c") }}{{ "abcabc".rfind("c") }}{{ "abcabc".index("b",2) }}{{ "abcabc".count("bc") }}{{ "abc".startswith(("x","a")) }}{{ "abc".endswith("c",0,2) }}',
    '{{ "a1".isalnum() }}{{ "²".isdigit() }}{{ "²".isdecimal() }}{{ "½".isnumeric() }}{{ "Ab".istitle() }}{{ "_a1".isidentifier() }}{{ " ".isspace() }}{{ "a\\n".isprintable() }}{{ "".isalpha() }}',
    '{{ "abc".translate({97: "x", 98: none}) }}{{ "abc".translate("abc".maketrans("ab","yz")) }}{{ "x".join(["a","b"]) }}{{ "a-b".replace("-","+",1) }}',
    '{{ 1.0 }}{{ 1e16 }}{{ 1.5e-7 }}{{ 100000000000000000000 }}{{ 0.1 + 0.2 }}{{ 1_000 }}{{ 0x1f }}{{ 0b101 }}{{ 1e5 }}',
    '{{ none }}{{ true }}{{ [none, true] }}{{ none is none }}{{ a is number }}{{ b is string }}{{ d is mapping }}{{ l is sequence }}{{ a is odd }}{{ a is divisibleby 3 }}{{ a is eq 1 }}{{ a is in l }}{{ a is not string }}',
    '{{ "x" if a }}{{ "x" if not a }}|{{ 1 if a else 2 if b else 3 }}',
    "{% set ns = namespace(x=1, y=[]) %}{{ ns.x }}{{ ns }}{% set ns.z = 5 %}{{ ns.z }}{{ ns['z'] }}",
    '{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d) = (3, 4) %}{{ c }}{{ d }}',
    '{% macro m() %}{% if a %}{% set a = 3 %}{% endif %}{{ a }}{% endmacro %}{{ m() }}{{ a }}',
    '{% for i in range(3) %}{% set a = a + 1 %}{{ a }}{% endfor %}{{ a }}',
    '{% if true %}{% set zz = 4 %}{% endif %}{{ zz }}{% for i in [1] %}{% set zz = 5 %}{% endfor %}{{ zz }}',
    '{{ "<a>"|e }}{{ "<a>"|escape|string }}{{ "<a>"|safe }}{{ "<"|e ~ "<" }}',
    '{{ l|batch(2)|list }}{{ l|slice(2)|list }}{{ l|batch(2,\'x\')|list }}{{ [\'a\',\'A\',\'b\']|unique|list }}{{ "a b c"|wordcount }}{{ 1500|filesizeformat }}{{ "a b/c"|urlencode }}',
    '{% for x in [1,2] %}{{ a }}{% endfor %}{% set a = 9 %}{{ a }}',
    '{{ a }}{% for x in [1,2] %}{{ a }}{% endfor %}{% set a = 9 %}{{ a }}',
    '{% if false %}{% set a = 9 %}{% endif %}{{ a }}',
    '{% for x in [1,2] %}{% for y in [1] %}{{ a }}{% endfor %}{% set a = 2 %}{{ a }}{% endfor %}{{ a }}',
    '{% macro f() %}{{ a }}{% endmacro %}{{ f() }}{% set a = 3 %}{{ f() }}',
    '{{ ("<"|safe) + "<" }}{{ "<" + ("<"|safe) }}{{ ("a"|e) + ("b"|e) }}{{ [("<"|safe) + ">"] }}',
    '{% set ns = namespace(n=0) %}{% for m in messages %}{% generation %}{% set ns.n = 5 %}{% endgeneration %}{% endfor %}{{ ns.n }}',
    'a\r\nb\r\n{{ messages[0].role }}\r\nc',
    '{% if true %}\r\nx\r\n{% endif %}\r\n  {%- if true %}\r\ny\r\n{%- endif %}\r\n{# c #}\r\nz',
    "a\rb\r{{ 'x\r\ny' }}\r",
    '{% raw %}a\r\nb{% endraw %}\r\n\r\n',
    '{% set ns = namespace(n=0) %}{% macro o() %}{% macro i() %}{% if true %}{% for q in [1] %}{% set ns.n = 9 %}{% endfor %}{% endif %}{% endmacro %}{{ i() }}{% endmacro %}{{ o() }}{{ ns.n }}',
    '{% set ns = namespace(n=0) %}{% macro w() %}{{ caller() }}{% endmacro %}{% call w() %}{% call w() %}{% set ns.n = ns.n + 4 %}{% endcall %}{% endcall %}{{ ns.n }}',
    '{% set ns = namespace(n=0) %}{% with a=1 %}{% filter upper %}{% set x %}{% set ns.n = 3 %}{% endset %}{% endfilter %}{% endwith %}{{ ns.n }}',
    '{% macro f() %}{% set ns.n = 1 %}{% endmacro %}{% set ns = namespace() %}{{ f() }}{{ ns.n }}',
    '{% with a=1 %}{% with a=a+1, b=a %}{{ a }}{{ b }}{% endwith %}{{ a }}{% endwith %}{{ a }}',
    '{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}',
    "{{ '\\N{LATIN SMALL LETTER E WITH ACUTE}\\N{BULLET}' }}",
    "{{ '\\0\\12\\377\\400' }}",
    "{{ '\\N{nope}' }}",
    "{{ '\\x4' }}",
    "{{ '\\U00110000' }}",
    "{{ 'a\\\nb' }}",
    '{{ \'\\u00e9\\\'\\"\\\\\' }}',
    '{{ lipsum is callable }}{{ joiner is defined }}',
    '{{ undefinedthing.x }}',
    '{{ [].append(1) }}',
    '{{ l.pop() }}',
    "{{ d.update({'a':1}) }}",
    "{{ 'a'.nope() }}",
    "{{ 1 + 'a' }}",
    "{{ 'a' % 1 }}",
    "{{ '%d' % 'a' }}",
    "{{ '{}'.format() }}",
    '{{ 1 / 0 }}',
    '{% for x in none %}{% endfor %}',
    '{{ none | list }}',
    '{{ range(100001) }}',
    '{% unknown %}',
    '{{ a b }}',
    "{{ 'x' | nofilter }}",
    '{% for x in l %}',
    "{{ raise_exception('no') }}",
    '{% set a.b = 1 %}',
    '{{ caller() }}',
    "{{ strftime_now('%d %b %Y') }}|{{ strftime_now('%f%z%Z') }}|{{ strftime_now('%-d/%-m/%y %a %A %B %j %U %W %V %G %u %w %%') }}|{{ strftime_now('%c|%x|%X|%p|%I|%y|%C|%D|%e|%F|%g|%h|%H|%k|%l|%M|%n|%P|%r|%R|%S|%t|%T') }}",
    "{{ strftime_now('%Q %E %_d %05d %^a %10A %#B %') }}",
    "{{ d['items'] }}",
    "{{ d.get('items') }}{{ d.get('nope') }}{{ d.keys() | list }}{{ d.copy() }}{{ l.index(1) }}{{ l.count(3) }}{{ l.copy() }}{{ (1,2).count(1) }}",
]

# The generator: expressions (`any_`) and statements (`stmt`) of limited depth.
STR=["'abc'","'a,b,,c'","' x y '","''","'Hello World'","'a\\nb\\r\\nc'","'é\\u00dfΣ'","b","s","messages[0].content","messages[2].content","'12'","'%s-%d'","'{}|{}'","'a\\tb'","\"it's\"","'\\x41\\101\\U0001F600\\q'","'3.7'","'ab' 'cd'"]
INT=["0","1","-3","a","7","42","10**3","l[0]","1_000","true","false","300"]
FLT=["1.5","0.1","2.0","1e20","-2.5","3.14159","1e-7","messages[1].n"]
LST=["l","[]","[1,2,3]","['b','A','c']","messages","(1,2)","[1,'a',none]","range(4)","d.keys()","d.items()","d.values()","[[1,2],[3,4]]","'abc'|list","[3,1,2]|sort","(1,)","['x','y']","[1.5,2,true]"]
DCT=["d","messages[0]","messages[1]","{}","{'a':1,'b':[1,2]}","{1:'x',none:2}","dict(a=1,b=2)","{'b':2,'A':1,'c':0}"]
ANY=["none","undef","nul","messages[2].x","messages[0].zz"]
def s(d=2): return expr(STR,d)
def pick(x): return R.choice(x)
def strm(d):
    m=pick(["upper()","lower()","title()","capitalize()","swapcase()","strip()","lstrip()","rstrip('cx ')","strip(%s)"%pick(STR),"split()","split(',')","split(%s,%s)"%(pick(STR),pick(INT)),"rsplit(none,1)","rsplit(',',%s)"%pick(INT),"splitlines()","splitlines(true)","partition(',')","rpartition('b')","replace('a','X')","replace('','-',%s)"%pick(INT),"removeprefix('a')","removesuffix('c')","startswith('a')","endswith(('c','d'))","find('b')","rfind(%s)"%pick(STR),"index('a')","count('')","count(%s,%s,%s)"%(pick(STR),pick(INT),pick(INT)),"find(%s,%s)"%(pick(STR),pick(INT)),"center(%s)"%pick(INT),"center(9,'*')","ljust(8)","rjust(8,'.')","zfill(6)","expandtabs()","expandtabs(%s)"%pick(INT),"isalpha()","isdigit()","isalnum()","isupper()","islower()","istitle()","isspace()","isidentifier()","isprintable()","isnumeric()","isdecimal()","isascii()","casefold()","join(['a','b'])","join(%s)"%pick(LST),"format(1,2)","format(%s,%s)"%(pick(INT),pick(STR)),"format(*%s)"%pick(LST),"format(**%s)"%pick(DCT),"maketrans('a','b')","translate({97:'Q',98:none})","encode()","nope()","format_map(d)","replace('a','b',1)","split(sep='b',maxsplit=1)","startswith('b',1)","index('zz')"])
    return "(%s).%s"%(s(d-1),m)
def fmt():
    k=R.random()
    if k<.5:
        f="%"+pick(["","","-","+"," ","0","#","-0","+0"])+pick(["","","5","10","1"])+pick(["","",".0",".2",".5"])+pick("diouxXeEfFgGcrsa%sdsdsd")
        return "'[%s]' %% (%s,)"%(f,any_(1)) if '%%' not in f and not f.endswith('%') else "'[%s]' %% ()"%f
    if k<.9:
        f=pick(["","","<",">","^","=","*<","*>","*^","0="])+pick(["","","+"," ","-"])+pick(["","","","#"])+pick(["","","0"])+pick(["","","5","12","1"])+pick(["","","",",","_"])+pick(["","","",".0",".2",".4"])+pick(["","","","d","x","X","b","o","e","f","g","s","%","c","n","E","G"])
        return "'[{:%s}]'.format(%s)"%(f,any_(1))
    return pick(["'{0} {1[0]} {0!r}'.format(%s,%s)","'{a.k} {b}'.format(a=%s,b=%s)","'{}{{}}{}'.format(%s,%s)","'{1}{0}'.format(%s,%s)","'%%(k)s %%s' %% (%s,%s)"])%(any_(1),any_(1))
FIL=["upper","lower","title","capitalize","trim","trim('ab')","length","first","last","list","reverse","reverse|list","sort","sort(reverse=true)","unique|list","join","join(',')","join('-',attribute='role')","sum","sum(start=1)","sum(attribute='n')","min","max","int","int(7)","int(base=16)","float","float(2.5)","string","abs","round","round(1)","round(2,'ceil')","round(1,'floor')","default('D')","default('D',true)","d(1)","tojson","tojson(indent=1)","tojson(sort_keys=true)","tojson(ensure_ascii=true)","tojson(separators=(',',':'))","items|list","dictsort","dictsort(by='value')","dictsort(true,reverse=true)","batch(2)|list","batch(2,0)|list","slice(2)|list","slice(3,'x')|list","map('upper')|list","map('string')|join","map('int')|list","map(attribute='role')|list","map(attribute=0)|list","map(attribute='n',default=9)|list","map('default','z')|list","select|list","reject|list","select('odd')|list","reject('none')|list","select('>',1)|list","selectattr('n')|list","selectattr('role','eq','user')|list","rejectattr('role','in',['user'])|list","groupby('role')","groupby('n')","groupby(0)","indent(2,true)","indent(1,blank=true)","truncate(6,true,'..',0)","wordcount","center(11)","replace('a','b')","replace('b','',1)","format(1,2)","e","safe","escape","forceescape","attr('role')","attr('real')","urlencode","filesizeformat","filesizeformat(true)","count","max(attribute='n')","string|length","nosuch","min(case_sensitive=true)","sort(attribute='role')","sort(attribute='role,content')","sort(case_sensitive=true)","map('nofilter')|list","select('notest')|list","items","xmlattr"]
TST=["defined","undefined","none","string","number","integer","float","boolean","true","false","mapping","iterable","sequence","callable","odd","even","divisibleby(3)","divisibleby 2","eq(1)","ne 1","lt(2)","gt 0","ge(1)","le 1","in([1,'a'])","in 'abc'","sameas none","sameas true","upper","lower","escaped","filter","test","equalto 'abc'","not none","nosuch"]
def expr(base,d):
    if d<=0 or R.random()<.35: return pick(base)
    return any_(d)
def any_(d=3):
    if d<=0 or R.random()<.12: return pick(STR+INT+FLT+LST+DCT+ANY)
    k=R.randrange(15)
    if k<=2: return strm(d)
    if k==3: return fmt()
    if k<=7: return "(%s)|%s"%(any_(d-1),pick(FIL))
    if k==8: return "(%s) is %s"%(any_(d-1),pick(TST))
    if k==9: return "(%s) %s (%s)"%(any_(d-1),pick(["+","-","*","/","//","%","**","~","==","!=","<",">","<=",">=","in","not in","and","or"]),any_(d-1))
    if k==10: return "(%s)[%s]"%(any_(d-1),pick(["0","-1","1:","::-1",":2","'role'","'k'","1:3:1","9","'items'","-2:","::2","true","none"]))
    if k==11: return "(%s).%s"%(any_(d-1),pick(["role","k","items()|list","get('k')","get('zz',5)","keys()|list","values()|list","count(1)","index(1)","copy()","real","imag","bit_length()","append(1)","pop('k')","update({})","__class__","n","items","conjugate()","x","0","denominator"]))
    if k==12: return "[%s, %s]"%(any_(d-1),any_(d-1))
    if k==13: return "(%s if %s else %s)"%(any_(d-1),any_(d-1),any_(d-1))
    return pick(["not (%s)","-(%s)","+(%s)","{'q': %s}","(%s,)","%s ~ 'x'","loop","(%s)|string"]).replace("%s","("+any_(d-1)+")")
WS=["","-","+","-"]
def tag(x): 
    a=pick(["","","-","","+"]);b=pick(["","","-",""]); 
    return "{%"+a+" "+x+" "+b+"%}"
def text(): return pick(["x"," ","\n","  ","a\n","\n  ","\n\n","y ","\r\n","\t","{","}","%","#","{ {","é"])
VARS=["a","b","l","v","w","ns.n","ns.z"]
def setv(): return pick(["v","w","a","ns.n","ns.z"])
def var(): return pick(["v","w","a","ns.n","ns.z","x","loop.index","loop.first","loop.last","loop.length","loop.nextitem","loop.previtem","loop.revindex","m","caller","varargs","kwargs","m.name","m.arguments","f","loop.changed(x)","loop.cycle(1,2)","cy.next()","cy.current","jo()","loop.depth"])
def body(d,inl=False):
    return "".join(stmt(d,inl) for _ in range(R.randrange(1,4)))
def stmt(d,inl=False):
    k=R.randrange(22)
    if k<=3: return text()
    if k<=6: return "{{"+pick(["","","-"])+" "+pick([var(),var(),any_(1)])+" "+pick(["","","-"])+"}}"
    if k==7: return "{#"+pick(["","-","+"])+" c "+pick(["","-"])+"#}"
    if d<=0: return text()
    if k<=9: return tag("set %s = %s"%(setv(),pick([any_(1),var(),"%s ~ 1"%var(),"[%s]"%var()])))
    if k==10: return tag("if "+pick([any_(1),var()]))+body(d-1,inl)+pick(["",tag("else")+body(d-1,inl),tag("elif "+var())+body(d-1,inl)])+tag("endif")
    if k<=12: return tag("for x in %s"%pick(LST+["[1,2]","[[1,[2]],3]"])+pick([""," if x"," if loop is defined"," if x != 1"," if ns.n is string"]))+body(d-1,True)+pick(["",tag("else")+body(d-1,inl)])+tag("endfor")
    if k==13: return tag("with "+pick(["v=1, w=v","a=a","v=%s"%any_(1),"x=2","","v, w = (1,2)"]))+body(d-1,inl)+tag("endwith")
    if k==14: return tag("macro m(%s)"%pick(["","p","p, q=1","p=1, q=p","v","a=a","caller=1","x, v=x"]))+body(d-1)+pick(["","{{ p }}","{{ caller() }}","{{ varargs }}{{ kwargs }}","{{ caller is defined }}"])+tag("endmacro")+"{{ m(%s) }}"%pick(["","1","1,2","p=1","1,2,3","q=5","*[1,2]","**{'p':1}","zz=1"])
    if k==15: return tag(pick(["call m()","call(p) m(1)","call m(1)","call(p=1) m()"]))+body(d-1)+tag("endcall")
    if k==16: return tag("generation")+body(d-1)+tag("endgeneration")
    if k==17: return tag("set %s"%setv()+pick([""," | upper"," | trim"]))+body(d-1)+tag("endset")
    if k==18: return tag("filter "+pick(["upper","trim","replace('x','y')","length","upper|lower"]))+body(d-1)+tag("endfilter")
    if k==19: return (tag(pick(["break","continue"])) if inl or R.random()<.1 else "q")
    if k==20: return tag("raw")+pick(["{{ x }}","{% y %}"," ","\n"])+tag("endraw")
    return tag("if x == %s"%pick(["1","2","3"]))+body(d-1,inl)+tag("endif")
HEAD="{% set ns = namespace(n=0) %}{% set cy = cycler('p','q') %}{% set jo = joiner() %}"
def case():
    if R.random()<.5: return "{{ %s }}"%any_(3)
    return HEAD+body(3)


random_cases = [rendered(case()) for _ in range(COUNT)]
print(json.dumps({
    "variables": VARIABLES,
    "cases": [rendered(case) for case in CASES],
    # The address of an object differs from run to run.
    "random": [case for case in random_cases if " at 0x" not in case.get("text", "")],
}, ensure_ascii=False, indent=0))
