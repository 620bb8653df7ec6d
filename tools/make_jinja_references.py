#!/usr/bin/env python3
"""Writes tests/unit/jinja/conversations.json and expressions.json: what transformers and jinja2 render.

- conversations.json: conversations with and without tools, drawn with a fixed seed. For each template in
  tests/unit/jinja/templates and each conversation: a checksum of the text and of the parts in {% generation %} blocks,
  or null if rendering fails. For some of them also the text.
- expressions.json: drawn expressions, each with the text that it renders to, or null if it fails.

tests/unit/jinja/reference_test.cc compares Tessera's results with both files. The templates are compiled with the
function of transformers that apply_chat_template uses. Run it in an environment with these packages:

    python3 -m venv .venv-references && .venv-references/bin/pip install -r tools/requirements-references.txt
    .venv-references/bin/python tools/make_jinja_references.py
"""

import copy
import datetime
import json
import pathlib
import random
import warnings

from transformers.utils import chat_template_utils

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/unit/jinja"
NOW = datetime.datetime(2026, 7, 4, 9, 5, 0)  # tests/unit/jinja/reference_test.cc uses the same time


class FixedClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


chat_template_utils.datetime = FixedClock


def render(template, variables):
    """(text, parts in generation blocks as byte offsets), or None if rendering fails."""
    blocks, indices = [], []
    try:
        compiled = chat_template_utils._compile_jinja_template(template)
        with compiled.environment.activate_tracker(blocks, indices):
            # A copy, because the filter `indent` changes a list that it gets.
            for block in compiled.generate(**copy.deepcopy(variables)):
                blocks.append(block)  # the tracker reads the list while it grows
    except Exception:
        return None
    text = "".join(blocks)
    return text, [[len(text[:begin].encode()), len(text[:end].encode())] for begin, end in indices]


def checksum(text, spans):
    """FNV-1a with 64 bits."""
    value = 0xCBF29CE484222325
    for byte in (text + "".join(f"|{begin},{end}" for begin, end in spans)).encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


# --- conversations

TEXTS = ["Hello!", "  spaces \n", "", "Größe – ünï 😀", "東京は首都です。\n\nZeile", "<think>\nhm\n</think>\n\nThe answer is 4.",
         "a</think>b", "one\ntwo\r\nthree", '{"a": 1}', "'single' \"double\" \\back", "<result>\nok\n</result>", "None", "42"]
PARAMETERS = [
    {"type": "string", "description": 'The city, such as "Paris"'}, {"type": "integer", "minimum": 0},
    {"type": "number", "default": 1.5}, {"type": ["string", "null"]}, {"type": "array", "items": {"type": "string"}},
    {"type": "string", "enum": ["c", "f"], "default": "c"}, {"oneOf": [{"type": "string", "description": "x"}, {"type": "number"}]},
    {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "array", "items": {"type": "object"}}}, "required": ["x"]},
    {"type": "boolean", "nullable": True}, {"type": "object", "additionalProperties": {"type": "integer"}}]
ARGUMENTS = [{}, {"city": "Paris"}, {"n": 3, "unit": None, "ok": True}, {"x": {"y": [1, 2.0, "z"]}, "q": 'a\nb "é"'}, '{"n": 1}']


def drawn_content(source, kinds):
    kind = source.choice(kinds)
    if kind == "parts":
        return [source.choice([{"type": "text", "text": source.choice(TEXTS)}, {"type": "image"}]) for _ in range(source.randint(0, 2))]
    return source.choice(TEXTS) if kind == "text" else None


def drawn_tool(source):
    names = source.sample(["city", "unit", "n", "opts"], source.randint(0, 3))
    function = {"name": source.choice(["get_weather", "search"]), "description": source.choice(["Gets it.", "Größe"]),
                "parameters": {"type": "object", "properties": {name: source.choice(PARAMETERS) for name in names},
                               "required": names[:1]}}
    if source.random() < 0.2:
        del function[source.choice(["description", "parameters"])]
    return {"type": "function", "function": function}


def drawn_variables(source):
    kinds = source.choice([["text"], ["text"], ["text"], ["text", "parts"], ["text", "parts", "none"]])
    messages = []
    if source.random() < 0.5:
        messages.append({"role": source.choice(["system", "system", "developer"]), "content": drawn_content(source, kinds)})
    for turn in range(source.randint(0, 3)):
        messages.append({"role": "user", "content": drawn_content(source, kinds)})
        if source.random() < 0.3:
            calls = [{"id": source.choice(["abcdef123", "1"]), "type": "function",
                      "function": {"name": "search", "arguments": source.choice(ARGUMENTS)}} for _ in range(source.choice([1, 1, 2]))]
            messages.append({"role": "assistant", "content": source.choice([None, "", "I look."]), "tool_calls": calls})
            messages += [{"role": "tool", "content": drawn_content(source, kinds), "tool_call_id": call["id"]} for call in calls]
        if turn == 0 or source.random() < 0.8:
            messages.append({"role": "assistant", "content": drawn_content(source, kinds)})
            if source.random() < 0.2:
                messages[-1][source.choice(["reasoning_content", "thinking"])] = source.choice(TEXTS)
    if source.random() < 0.1 and messages:
        messages[source.randrange(len(messages))]["role"] = source.choice(["user", "ipython", "other"])
    variables = {"messages": messages, "add_generation_prompt": source.random() < 0.5, "bos_token": "<s>", "eos_token": "</s>",
                 "tools": [drawn_tool(source) for _ in range(source.randint(1, 2))] if source.random() < 0.4 else None}
    for name, value in [("enable_thinking", False), ("tools_first", True), ("builtin_tools", ["code", "python", "search"]),
                        ("date_string", "26 Jul 2024"), ("reasoning_effort", "high"), ("model_identity", "You are X."),
                        ("documents", [{"title": "the title", "text": " x "}, {"title": "ö", "text": "y"}])]:
        if source.random() < 0.15:
            variables[name] = value
    return variables


# --- expressions

VARIABLES = {
    "s": "Hello World", "e": "", "u": "Größe ß İ ΑΣ 😀", "w": " \t pad \n", "n": 7, "z": 0, "m": -3, "f": 2.5, "g": 1e20,
    "h": -0.125, "b": True, "c": False, "o": None, "l": [3, 1, 2], "k": ["b", "A", "c", "a"], "num": "12", "fl": " 3.5e2 ",
    "d": {"a": 1, "b": {"c": [1, 2]}, "items": 5, "x y": "q"}, "el": [], "ed": {}, "lines": "one\ntwo\r\n\nthree\u000bfour",
    "ds": [{"role": "user", "n": 2, "t": "B"}, {"role": "system", "n": 1, "t": "a"}, {"role": "user", "n": 3, "t": None}],
    "js": {"k": [1, 2.0, None, True, 'é"\n\u2028'], "é": {}}, "nested": [[1, 2], [3, [4]]]}
NAMES = list(VARIABLES) + ["undef"]
LITERALS = """'' 'a' 'lo' '\\n' 'é' 0 1 2 -1 3 10 1.5 0.1 1e3 true false none [] {} () (1,) [1,'a',none] {'a':1,2:'b'}
    range(4) range(5,0,-2)""".split()
METHODS = """strip() strip('dH') lstrip('H') rstrip() upper() lower() title() capitalize() split() split('l') split('l',1)
    rsplit('l',1) rsplit() split(none,1) rsplit(none,1) splitlines() splitlines(true) startswith('H') endswith(('d','x'))
    replace('l','LL') replace('','-') replace('o','0',1) find('o') find('o',5) rfind('o') find('l',-4,-1) count('l') index('o')
    join(['a','b']) join(k) join('xyz') format(1,a=2) isdigit() isalpha() isspace() isalnum() isupper() islower() zfill(15)
    ljust(14,'.') rjust(14) center(15,'*') center(16) partition('l') rpartition('l') removeprefix('He') removesuffix('ld')
    get('a') get('q',9) get('b').c copy() append(1) pop() update({}) a b.c x 0 role isascii() isdecimal() isprintable()
    keys()|list values()|list items()|list""".split()
FILTERS = """upper lower title capitalize trim trim('Hd') length count list first last join join('-') join('-',attribute='role')
    string int int(5) float float(1.5) abs round round(1) round(2,'floor') round(0,'ceil') default('D') default('D',true) d tojson
    tojson(indent=2) tojson(ensure_ascii=true) tojson(separators=(',',':')) tojson(sort_keys=true,indent=1) tojson(indent='\\t')
    sort sort(reverse=true) sort(attribute='n') sort(attribute='role,n') sort(case_sensitive=true) unique|list
    unique(attribute='role')|list reverse|list map('upper')|list map(attribute='role')|list map(attribute='zz',default='?')|list
    map('int')|list map('default','x')|list map('length')|list select|list select('odd')|list select('string')|list
    select('gt',1)|list reject('none')|list reject|list selectattr('role','equalto','user')|list selectattr('t')|list
    rejectattr('role','eq','user')|list selectattr('n','gt',1)|map(attribute='n')|list items|list dictsort dictsort(by='value')
    dictsort(reverse=true) sum sum(attribute='n') sum(start=10) min max min(attribute='n') max(attribute='n') batch(2)|list
    batch(2,'f')|list slice(2)|list slice(2,'f')|list groupby('role') groupby('role')|map('first')|list replace('l','L')
    replace('o','',1) indent indent(2) indent(2,true) indent('>',blank=true) e|length format(1) format('x',2) center(20)
    attr('a') map('trim')|join('|') map('tojson')|join(',') batch(3)|map('join','+')|list""".split()
TESTS = """defined undefined none string mapping sequence iterable number boolean true false integer float odd even divisibleby(3)
    eq(1) equalto('a') ne(none) in([1,2,'a']) in('Hello') lower upper callable gt(1) lt(2) ge(1) le(7) filter test""".split()
OPERATORS = "+ - * / // % ~ == != < > <= >= in and or".split() + ["not in"]
PERCENT = ["%s|%r", "%d", "%5.1f|", "%-5s|", "%05d", "%x", "%(a)s", "a%%", "%+d %s", "%.2s", "%e", "%g", "%10.3s|"]
BRACES = ["{} {}", "{0}{1}", "{:>8}|", "{:.2f}", "{a}", "{0[a]}", "{:5d}", "{:,}", "{:^9}|", "{!r}", "{:08.3f}", "{:x}", "{:*^11}"]


def drawn_expression(source, depth):
    def inner():
        return "(" + drawn_expression(source, depth - 1) + ")"

    kind = source.random() if depth > 0 else 0
    if kind < 0.12:
        return source.choice(NAMES) if source.random() < 0.7 else source.choice(LITERALS)
    if kind < 0.36:
        return f"{inner()} {source.choice(OPERATORS)} {inner()}"
    if kind < 0.58:
        return f"{inner()}|{source.choice(FILTERS)}"
    if kind < 0.74:
        return f"{inner()}.{source.choice(METHODS)}"
    if kind < 0.80:
        return f"{inner()} is {source.choice(['', 'not '])}{source.choice(TESTS)}"
    if kind < 0.84:
        return f"{inner()}[{drawn_expression(source, depth - 1)}]"
    if kind < 0.90:
        bounds = [source.choice(["", "0", "1", "-1", "3", "-3", "9"]) for _ in range(2)] + [source.choice(["", ":", ":2", ":-1", ":-2"])]
        return f"{source.choice(NAMES)}[{bounds[0]}:{bounds[1]}{bounds[2]}]"
    if kind < 0.92:
        return source.choice(["not ", "-"]) + inner()
    if kind < 0.95:
        return f"{inner()} if {inner()}{source.choice([' else ' + inner(), ''])}"
    if kind < 0.975:
        return f"{source.choice(PERCENT)!r} % {inner()}"
    return f"{source.choice(BRACES)!r}.format({inner()}, {inner()}, a=1)"


# These texts depend on addresses in memory.
ADDRESSES = (" at 0x", "<generator", "<function", "<built-in", "<dict_", "<reversed", "<range_", "<class")


def drawn_expressions(count):
    source, rows, seen = random.Random(21), [], set()
    while len(rows) < count:
        expression = drawn_expression(source, source.choice([1, 2, 2, 3]))
        result = render("{{ " + expression + " }}", VARIABLES)
        # Most drawn expressions fail. Four fifths of the rows must render.
        if expression in seen or (result is None and sum(row[1] is None for row in rows) * 5 > len(rows)):
            continue
        if result is None or (len(result[0]) < 300 and not any(part in result[0] for part in ADDRESSES)):
            seen.add(expression)
            rows.append([expression, result and result[0]])
    return rows


def write(name, value):
    lines = ",\n".join(f" {json.dumps(key)}: " + ("[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n ]"
                                                  if isinstance(rows, list) else json.dumps(rows, separators=(",", ":")))
                       for key, rows in value.items())
    (FOLDER / name).write_text("{\n" + lines + "\n}\n", encoding="utf-8")


def main():
    warnings.simplefilter("ignore")
    source = random.Random(20)
    conversations = [drawn_variables(source) for _ in range(300)]
    checksums, texts = {}, []
    for path in sorted((FOLDER / "templates").glob("*.jinja")):
        template = path.read_text(encoding="utf-8")
        results = [render(template, variables) for variables in conversations]
        checksums[path.stem] = [result and checksum(*result) for result in results]
        shown = [i for i, result in enumerate(results) if result][:2]
        texts += [[path.stem, i, results[i][0], results[i][1]] for i in shown]
    write("conversations.json", {"conversations": conversations, "checksums": checksums, "texts": texts})
    write("expressions.json", {"variables": VARIABLES, "expressions": drawn_expressions(3000)})


if __name__ == "__main__":
    main()
