#include "tessera/jinja/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "reading.h"
#include "tessera/base/error.h"

namespace tessera::jinja {
namespace {

using ::testing::HasSubstr;

std::string text_of(const std::string& source, const Json& variables = Json::object()) {
  return Template::parse(source, "chat.jinja").render(variables).text;
}

std::string error_of(const std::string& source, const Json& variables = Json::object(), const Options& options = {}) {
  try {
    return "rendered: " + Template::parse(source, "chat.jinja").render(variables, options).text.substr(0, 100);
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(JinjaTemplate, UnsupportedConstructsAreRefusedWhileParsing) {
  const std::pair<const char*, const char*> cases[] = {
      {"{% include 'other' %}", "chat.jinja:1: `include` is not supported"},
      {"\n\n{% extends 'base' %}", "chat.jinja:3: `extends` is not supported"},
      {"{% import 'a' as b %}", "`import` is not supported"},
      {"{% from 'a' import b %}", "`from` is not supported"},
      {"{% block b %}{% endblock %}", "`block` is not supported"},
      {"{% autoescape true %}{% endautoescape %}", "`autoescape` is not supported"},
      {"{% iff x %}", "Unknown block `iff`. Did you mean \"if\"?"},
      {"{{ x|uper }}", "The filter `uper` is not supported. Did you mean \"upper\"?"},
      {"{{ x|urlize }}", "The filter `urlize` is not supported"},
      {"{{ x is strin }}", "The test `strin` is not supported. Did you mean \"string\"?"},
      {"{{ x.encode('utf8') }}", "The method encode() is not supported"},
      {"{{ self.title() }}", "`self` is not supported"},
      {"{{ x[1:2, 3] }}", "Several slices"},
      {"{{ ö }}", "letters that are not ASCII"},
      {"{{ '\\ud83d' }}", "surrogate"},
      {"{{ 99999999999999999999 }}", "too large"},
      {"{{ x", "A tag has no end. Write }}"},
      {"{% if x", "A tag has no end. Write %}"},
      {"{# x", "A comment has no end"},
      {"{% raw %}x", "A raw block has no end"},
      {"{{ 'x }}", "A text has no end"},
      {"{% if x %}", "chat.jinja:1: A block has no end. Write {% endif %}"},
      {"{% for x in y %}{% endif %}", "Unknown block `endif`"},
      {"{{ (1, 2] }}", "Unexpected ]"},
      {"{{ 1 + }}", "Unexpected }}, expected an expression"},
      {"{{ x y }}", "Unexpected y, expected }}"},
      {"{% break %}", "`break` is outside of a loop"},
      {"{% for a in b %}{% macro m() %}{% continue %}{% endmacro %}{% endfor %}", "`continue` is outside of a loop"},
      {"{% set true = 1 %}", "Cannot assign to true"},
      {"{% for i in x %}{% set loop = 1 %}{% endfor %}", "Cannot assign to `loop`"},
      {"{% macro m(a=1, b) %}{% endmacro %}", "A parameter without a default value"},
      {"{% call x %}{% endcall %}", "A call block needs a call"},
      {"{{ f(a=1, 2) }}", "An argument without a name follows"},
      {"\xff", "not valid UTF-8"},
  };
  for (const auto& [source, message] : cases) {
    SCOPED_TRACE(source);
    try {
      Template::parse(source, "chat.jinja");
      ADD_FAILURE() << "was parsed";
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr(message));
    }
  }
}

TEST(JinjaTemplate, ErrorsOfRenderingHaveTheLine) {
  const Json variables = {{"x", {{"a", 1}}}, {"l", {1, 2}}};
  const std::pair<const char*, const char*> cases[] = {
      {"a\n{{ nothing.b }}", "chat.jinja:2: `nothing` is undefined"},
      {"{% if true %}\n\n{{ x.b.c }}{% endif %}", "chat.jinja:3: A value of type dict has no attribute `b`"},
      {"{% macro m() %}\n{{ raise_exception('no ' ~ 'tools') }}{% endmacro %}\n{{ m() }}",
       "chat.jinja:2: The template reports: no tools"},
      {"{{ l.append(1) }}", "append() would change a list"},
      {"{{ x.pop('a') }}", "pop() would change a dict"},
      {"{{ 'a' + 1 }}", "Operator + cannot take values of the types str and int"},
      {"{{ 1 // 0 }}", "divided by 0"},
      {"{{ l|tojson(y=1) }}", "tojson has no parameter y"},
      {"{% set l.x = 1 %}", "l is no namespace"},
      {"{% for a, b in [1] %}{% endfor %}", "is not iterable"},
      {"{% for a, b in [[1]] %}{% endfor %}", "too few elements"},
      {"{{ 9223372036854775807 + 1 }}", "more than 63 bits"},
      {"{{ l|map('nope')|list }}", "The filter `nope` is not supported"},
      {"{% set ns = namespace(_a=1) %}", "begins with _"},
      {"{{ strftime_now('%f') }}", "does not support %f"},
      {"{{ [1]|map('string') }}", "prints a value of type generator"},
  };
  for (const auto& [source, message] : cases) {
    SCOPED_TRACE(source);
    EXPECT_THAT(error_of(source, variables), HasSubstr(message));
  }
  EXPECT_THAT(error_of("{{ x }}", Json{{"x", uint64_t{1} << 63}}), HasSubstr("more than 63 bits"));
  EXPECT_THAT(error_of("{{ x }}", Json{{"x", "\xff"}}), HasSubstr("invalid UTF-8"));
  EXPECT_THAT(error_of("{{ x }}", Json::array()), HasSubstr("not an object"));
}

TEST(JinjaTemplate, GenerationBlocksGiveSpans) {
  const Template parsed =
      Template::parse("é{% for m in l %}[{% generation %}{{ m }}{% endgeneration %}]{% endfor %}", "t");
  const Rendered rendered = parsed.render({{"l", {"ö", "", "ab"}}});
  EXPECT_EQ(rendered.text, "é[ö][][ab]");
  EXPECT_THAT(rendered.generated, testing::ElementsAre(Span{3, 5}, Span{7, 7}, Span{9, 11}));

  const char* within_macro = "{% macro m() %}{% generation %}x{% endgeneration %}{% endmacro %}{{ m() }}";
  EXPECT_THAT(error_of(within_macro), HasSubstr("A generation block is within a macro"));
  Options options;
  options.spans = false;
  EXPECT_EQ(Template::parse(within_macro, "t").render(Json::object(), options).text, "x");
  EXPECT_THAT(error_of("{% generation %}{% generation %}x{% endgeneration %}{% endgeneration %}"),
              HasSubstr("is within"));
}

TEST(JinjaTemplate, RunawayTemplatesAreStopped) {
  const std::string deep(100'000, '(');
  std::string sum = "{{ 1", filters = "{{ x", attributes = "{{ x", ifs, nots = "{{ ";
  for (int i = 0; i < 100'000; ++i) {
    sum += "+1";
    filters += "|upper";
    attributes += ".a";
    ifs += "{% if x %}";
    nots += "not ";
  }
  const std::string cases[] = {
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m(n) %}{{ m(n + 1) ~ m(n + 1) }}{% endmacro %}{{ m(0) }}",
      "{% for x in range(10 ** 9) %}{% endfor %}",
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
      "{% set ns = namespace(s=['x']) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
      "{% set ns = namespace(s=[]) %}{% for i in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
      "{% set ns = namespace(s=[]) %}{% for i in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s|tojson "
      "}}",
      "{% set ns = namespace(s=[], t=[]) %}{% for i in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% set ns.t = [ns.t, "
      "ns.t] %}{% endfor %}{{ ns.s == ns.t }}",
      "{% set ns = namespace(s=[]) %}{% for i in range(99999) %}{% set ns.s = [ns.s] %}{% endfor %}",
      "{% set ns = namespace(s=[1]) %}{% for i in range(99999) %}{% set ns.s = ns.s|map('string') %}{% endfor %}",
      "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
      "{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns.a == [ns.a] }}{{ ns.a|tojson }}",
      "{{ 'x' * 10 ** 12 }}{{ 'x' * 10 ** 12 }}",
      "{{ 'x'.ljust(10 ** 15) }}",
      "{{ '%999999999d' % 1 }}",
      "{{ '{:999999999}'.format(1) }}",
      "{{ ('x' * 10 ** 6).replace('x', 'y' * 10 ** 6) }}",
      "{{ ('a' * 10 ** 6).replace('', 'y' * 10 ** 6) }}",
      "{% set s = 'a' * 10 ** 7 %}{% for i in range(99999) %}{{ 'b' in s }}{% endfor %}",
      "{% set s = 'a' * 10 ** 7 %}{% for i in range(99999) %}{{ s.strip('xyz').find('b') }}{% endfor %}",
      "{{ 2 ** 10 ** 15 }}",
      "{{ 'a'|indent(10 ** 15) }}{{ ('a\n' * 10 ** 6)|indent(10 ** 4) }}",
      "{{ [1]|batch(10 ** 15, 0)|list }}",
      "{{ 'a'|center(10 ** 15) }}",
      "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
      "{% for x in [1] recursive %}{{ loop([x]) }}{% endfor %}",
      "{{ [1, 2]|tojson(indent='x' * 10 ** 9) }}",
      "{{ " + deep + "1",
      sum + " }}",
      filters + " }}",
      attributes + " }}",
      nots + "x }}",
      ifs,
      "{{ " + std::string(100'000, '[') + std::string(100'000, ']') + " }}",
      "{{ " + std::string(100'000, '-') + "1 }}",
  };
  Options options;
  options.limits = {.steps = 1'000'000, .bytes = 100'000'000};
  for (const std::string& source : cases) {
    EXPECT_THROW(Template::parse(source, "t").render(Json::object(), options), InputError) << source.substr(0, 200);
  }
  // The default limits stop it, too.
  EXPECT_THAT(error_of(cases[3]), HasSubstr("The template was stopped: it takes too many steps"));
}

TEST(JinjaTemplate, LoopsAndFramesInNamespacesAreFreed) {
  // Chains of references through namespaces, loops and macros. They must end without a crash or a leak.
  EXPECT_EQ(text_of("{% set ns = namespace(l=0) %}{% for i in range(50000) %}{% for y in [ns.l] %}{% set ns.l = loop %}"
                    "{% endfor %}{% endfor %}{{ ns.l.index }}"),
            "1");
  EXPECT_EQ(text_of("{% set ns = namespace(l=0) %}{% for i in range(20000) %}{% for y in [ns]|map(attribute='l') %}"
                    "{% set ns.l = [loop] %}{% endfor %}{% endfor %}{{ ns.l|length }}"),
            "1");
  EXPECT_EQ(
      text_of("{% set ns = namespace() %}{% macro m(n) %}{% macro inner() %}{{ n }}{% endmacro %}{% set ns.f = inner %}"
              "{% endmacro %}{% for i in range(1000) %}{{ m(i) }}{% endfor %}{{ ns.f() }}"),
      "999");
}

TEST(JinjaTemplate, CaseOfEveryCharacterOfScripts) {
  EXPECT_EQ(text_of("{{ 'ßŉǰΐﬁᾀᾳᾲᾀ'|upper }}"),
            "SS\u02BCNJ\u030C\u0399\u0308\u0301FI\u1F08\u0399\u0391\u0399\u1FBA\u0399\u1F08\u0399");
  EXPECT_EQ(text_of("{{ 'ß ŉ ﬁ ᾳ ᾲ ǆ'.title() }}"), "Ss ʼN Fi ᾼ Ὰͅ ǅ");
  EXPECT_EQ(text_of("{{ 'ΑΣ. Σ İ ΑΣΑ'|lower }}"), "ας. σ i̇ ασα");
}

// A random change of the template: bytes or pieces are removed, repeated, exchanged or come from another template.
std::string mutated(std::string source, const std::vector<std::string>& sources, std::mt19937& random) {
  static const std::vector<std::string> kPieces = {"{%",
                                                   "%}",
                                                   "{{",
                                                   "}}",
                                                   "{#",
                                                   "#}",
                                                   "-",
                                                   "|",
                                                   "(",
                                                   ")",
                                                   "[",
                                                   "]",
                                                   "{",
                                                   "}",
                                                   "'",
                                                   "\"",
                                                   "\\",
                                                   "not ",
                                                   " is ",
                                                   " in ",
                                                   "loop",
                                                   "ns",
                                                   "namespace(",
                                                   "messages",
                                                   "[::-1]",
                                                   "[1:",
                                                   "**",
                                                   "*",
                                                   "~",
                                                   "%",
                                                   "//",
                                                   "{% endif %}",
                                                   "{% endfor %}",
                                                   "{% else %}",
                                                   "{% set x = x %}",
                                                   "recursive ",
                                                   "range(99999)",
                                                   "|map('",
                                                   "|tojson",
                                                   "caller()",
                                                   "\xc3\xbc",
                                                   "\n",
                                                   "1e9",
                                                   "-1",
                                                   "none"};
  const auto below = [&](size_t limit) { return limit == 0 ? 0 : random() % limit; };
  for (size_t changes = 1 + below(4); changes > 0; --changes) {
    const size_t at = below(source.size() + 1), size = below(std::min<size_t>(source.size() - at, 30) + 1);
    const std::string& other = sources[below(sources.size())];
    switch (below(5)) {
      case 0:
        source.erase(at, size);
        break;
      case 1:
        source.insert(at, source.substr(at, size));
        break;
      case 2:
        source.insert(at, kPieces[below(kPieces.size())]);
        break;
      case 3:
        source.replace(at, size, kPieces[below(kPieces.size())]);
        break;
      default:
        source.insert(at, other.substr(below(other.size()), below(60)));
    }
  }
  return source;
}

TEST(JinjaTemplate, MutatedTemplatesRenderOrThrow) {
  const Json conversations = Json::parse(read_text("conversations.json"))["conversations"];
  std::vector<std::string> sources;
  for (const std::string& name : template_names()) sources.push_back(read_text("templates/" + name + ".jinja"));
  Options options;
  options.limits = {.steps = 100'000, .bytes = 10'000'000};
  std::mt19937 random(22);
  int rendered = 0, thrown = 0;
  for (int i = 0; i < 6000; ++i) {
    const std::string source = mutated(sources[static_cast<size_t>(i) % sources.size()], sources, random);
    try {
      Template::parse(source, "mutated").render(conversations[random() % conversations.size()], options);
      ++rendered;
    } catch (const InputError&) {
      ++thrown;
    }
  }
  EXPECT_GE(rendered, 300);
  EXPECT_GE(thrown, 300);
}

}  // namespace
}  // namespace tessera::jinja
