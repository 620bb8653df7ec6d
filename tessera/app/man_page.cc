// Makes the manual page.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/app/completion_table.h"
#include "tessera/app/help.h"
#include "tessera/base/counted.h"
#include "tessera/base/text.h"
#include "tessera/data/tokenizer_text.h"
#include "tessera/model/architecture.h"

namespace tessera {

namespace {

// Text for groff: a character that groff would interpret, or that is not ASCII, becomes an escape sequence.
std::string roff(const std::string& text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    at += c.num_bytes;
    if (c.code == '\\') {
      result += "\\e";
    } else if (c.code == '-') {
      result += "\\-";  // a minus sign, which users can copy; a plain one becomes a hyphen
    } else if (c.code == '\'') {
      result += "\\(aq";
    } else if (c.code == '"') {
      result += "\\(dq";
    } else if (c.code == '`') {
      result += "\\(ga";
    } else if (c.code == '^') {
      result += "\\(ha";
    } else if (c.code == '~') {
      result += "\\(ti";
    } else if (c.code >= 0x80) {
      result += fmt::format("\\[u{:04X}]", static_cast<uint32_t>(c.code));
    } else {
      result += static_cast<char>(c.code);
    }
  }
  return result.starts_with('.') ? "\\&" + result : result;
}

std::string bold(const std::string& text) {
  return "\\fB" + roff(text) + "\\fR";
}

std::string italic(const std::string& text) {
  return "\\fI" + roff(text) + "\\fR";
}

// A paragraph with a term before it.
std::string tagged(const std::string& term, const std::string& text) {
  return fmt::format(".TP\n{}\n{}\n", term, text);
}

std::string verb_part(const Verb& verb) {
  std::string text = roff(verb.help) + ".";
  if (!verb.example.empty()) text += "\n.br\nExample: " + roff(verb.example);
  std::string term = bold("tessera " + verb.name);
  if (!verb.operands.empty()) term += " " + italic(verb.operands);
  return tagged(term, text);
}

std::string value_of(const Setting& setting) {
  if (setting.type == SettingType::boolean) return "";
  return " " + italic(setting.choices.empty() ? setting.unit : joined(setting.choices, "|"));
}

// The verbs that take a setting. `config` takes all of them, so it is not in the list.
std::string verbs_of(const Setting& setting, const std::vector<Verb>& verbs) {
  std::vector<std::string> names;
  for (const Verb& verb : verbs) {
    if (!verb.about_verb && setting.group & verb.groups) names.push_back(verb.name);
  }
  return enumerated(names);
}

std::string setting_part(const Setting& setting, const std::vector<Verb>& verbs) {
  std::string term = bold(setting.flag());
  if (setting.type == SettingType::boolean) term += ", " + bold("--no-" + dashed(setting.name));
  term += value_of(setting);
  std::string text = roff(setting.help) + ".";
  const std::string preset = plain_text(setting.get(Settings{}));
  if (!preset.empty()) text += roff(" Default: " + preset + ".");
  text += roff(" Verbs: " + verbs_of(setting, verbs) + ".");
  return tagged(term, text);
}

}  // namespace

std::string manual_page(const std::vector<Verb>& verbs) {
  std::string page = fmt::format(
      ".\\\" Made by: tessera man\n"
      ".TH TESSERA 1 \"\" \"tessera {}\" \"User Commands\"\n"
      ".SH NAME\ntessera \\- fine\\-tunes language models\n"
      ".SH SYNOPSIS\n.B tessera\n.I verb\n.RI [ config.toml ]\n.RI [ \\-\\-flags ]\n",
      roff(TESSERA_VERSION));
  page += ".SH DESCRIPTION\n" + roff(program_purpose()) + "\n.PP\n" + roff(precedence_help()) + "\n";
  page += ".SH VERBS\n";
  for (const Verb& verb : verbs) page += verb_part(verb);
  page += ".SH SETTINGS\n";
  page += roff("A flag may have dashes or underscores.") + "\n";
  Groups last_group = 0;
  for (const Setting& setting : all_settings()) {
    if (setting.group != last_group) page += fmt::format(".SS \"{}\"\n", roff(title_of(setting.group)));
    last_group = setting.group;
    page += setting_part(setting, verbs);
  }
  page += ".SH EXIT STATUS\n";
  for (const ExitCodeHelp& code : exit_code_help()) page += tagged(bold(code.code), roff(code.meaning) + ".");
  page += ".SH ENVIRONMENT\n";
  page += tagged(bold("TESSERA_") + italic("SETTING"),
                 roff("Sets a setting, as TESSERA_BATCH_SIZE=8 does. A flag has precedence."));
  return page;
}

}  // namespace tessera
