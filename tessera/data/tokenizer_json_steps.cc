// The parts of a tokenizer.json around its model: normalizer, pre-tokenizer, decoder and post-processor. In this file,
// "the library" is Hugging Face's library `tokenizers`.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/data/tokenizer_json.h"
#include "tessera/data/tokenizer_json_node.h"
#include "tessera/data/unicode.h"

namespace tessera {

namespace {

using Node = TokenizerNode;

// The elements of the array `key`.
std::vector<Node> elements(const Node& node, const char* key) {
  const Node list = node.at(key);
  std::vector<Node> result;
  for (size_t i = 0; i < list.array_size(); ++i) result.push_back(list[i]);
  return result;
}

// The text of a node, which must be one character.
std::string character_of(const Node& node) {
  const std::string& text = node.text();
  if (text.empty() || code_point_at(text, 0).num_bytes != text.size()) {
    node.fail("expected one character, found " + quoted_token(text));
  }
  return text;
}

ReplaceRule read_replace(const Node& node) {
  const Node pattern = node.at("pattern");
  const bool is_regex = pattern.has("Regex");
  if (!is_regex && !pattern.has("String")) pattern.fail("expected {\"Regex\": ...} or {\"String\": ...}");
  ReplaceRule rule{pattern.at(is_regex ? "Regex" : "String").text(), is_regex, node.at("content").text(),
                   pattern.where};
  if (rule.pattern.empty()) pattern.fail("the pattern is empty");
  return rule;
}

// Sequences may contain sequences. parse_json() limits the depth.
void read_normalizer(const Node& node, std::vector<NormalizerStep>& steps) {
  using Kind = NormalizerStep::Kind;
  const std::string type = node.type();
  const auto form = [&](NormalForm normal_form) { steps.push_back({.kind = Kind::form, .form = normal_form}); };
  if (type == "Sequence") {
    for (const Node& part : elements(node, "normalizers")) read_normalizer(part, steps);
  } else if (type == "NFC") {
    form(NormalForm::nfc);
  } else if (type == "NFD") {
    form(NormalForm::nfd);
  } else if (type == "NFKC") {
    form(NormalForm::nfkc);
  } else if (type == "NFKD") {
    form(NormalForm::nfkd);
  } else if (type == "Prepend") {
    steps.push_back({.kind = Kind::prepend, .prefix = node.at("prepend").text()});
  } else if (type == "Replace") {
    steps.push_back({.kind = Kind::replace, .replace = read_replace(node)});
  } else {
    node.fail("the normalizer is of type " + quoted_token(type),
              std::string(kKindsOfTokenizers) + " with the normalizers NFC, NFD, NFKC, NFKD, Prepend and Replace");
  }
}

SplitBehavior read_behavior(const Node& node) {
  const std::string& name = node.text();
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  node.fail("the split behavior " + quoted_token(name) + " does not exist",
            "Use Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

std::string escaped(const std::string& text) {
  std::string pattern;
  for (const char c : text) {
    if (std::string_view("\\.+*?()|[]{}^$#&-~").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

std::string read_pattern(const Node& node) {
  if (node.has("Regex")) return node.at("Regex").text();
  if (!node.has("String")) node.fail("expected {\"Regex\": ...} or {\"String\": ...}");
  return escaped(node.at("String").text());
}

void read_byte_level(const Node& node, std::vector<SplitStep>& steps) {
  if (node.flag("add_prefix_space", true)) steps.push_back({.kind = SplitStep::Kind::prefix_space});
  if (node.flag("use_regex", true)) steps.push_back({.pattern = kGpt2Pattern, .where = node.where});
}

MetaspacePrefix read_metaspace_prefix(const Node& node) {
  MetaspacePrefix prefix = MetaspacePrefix::always;
  if (node.has("prepend_scheme")) {
    const Node scheme = node.at("prepend_scheme");
    if (scheme.text() == "first") {
      prefix = MetaspacePrefix::first;
    } else if (scheme.text() == "never") {
      prefix = MetaspacePrefix::never;
    } else if (scheme.text() != "always") {
      scheme.fail("the prepend_scheme " + quoted_token(scheme.text()) + " does not exist",
                  "Use always, first or never");
    }
  }
  // add_prefix_space = false is an older form of prepend_scheme = "never". The library accepts add_prefix_space = false
  // only if prepend_scheme is "never", too.
  if (!node.flag("add_prefix_space", true) && prefix != MetaspacePrefix::never) {
    node.fail("add_prefix_space is false, but prepend_scheme is not \"never\"",
              "Set prepend_scheme to \"never\", or remove add_prefix_space");
  }
  return prefix;
}

void read_metaspace(const Node& node, std::vector<SplitStep>& steps) {
  const std::string replacement = character_of(node.at("replacement"));
  steps.push_back({.kind = SplitStep::Kind::metaspace,
                   .metaspace = replacement,
                   .prefix = read_metaspace_prefix(node),
                   .where = node.where});
  if (!node.flag("split", true)) return;
  steps.push_back({.pattern = escaped(replacement), .behavior = SplitBehavior::merged_with_next, .where = node.where});
}

std::string digits_pattern() {
  std::string pattern = "[";
  for (const CodeRange& range : ranges_of_digits()) {
    pattern +=
        fmt::format("\\x{{{:X}}}-\\x{{{:X}}}", static_cast<uint32_t>(range.first), static_cast<uint32_t>(range.last));
  }
  return pattern + "]";
}

void read_pre_tokenizer(const Node& node, TokenizerJson& result) {
  const std::string type = node.type();
  if (type == "Sequence") {
    for (const Node& part : elements(node, "pretokenizers")) read_pre_tokenizer(part, result);
    return;
  }
  if (result.byte_level) {
    node.fail("a pre-tokenizer of type " + quoted_token(type) + " comes after ByteLevel", kKindsOfTokenizers);
  }
  if (type == "ByteLevel") {
    read_byte_level(node, result.steps);
    result.byte_level = true;
  } else if (type == "Metaspace") {
    read_metaspace(node, result.steps);
  } else if (type == "Split") {
    const Node pattern = node.at("pattern");
    result.steps.push_back({.pattern = read_pattern(pattern),
                            .behavior = read_behavior(node.at("behavior")),
                            .invert = node.at("invert").flag(),
                            .where = pattern.where});
  } else if (type == "Digits") {
    const bool single = node.at("individual_digits").flag();
    result.steps.push_back({.pattern = digits_pattern(),
                            .behavior = single ? SplitBehavior::isolated : SplitBehavior::contiguous,
                            .where = node.where});
  } else {
    node.fail("the pre-tokenizer is of type " + quoted_token(type),
              std::string(kKindsOfTokenizers) + " with the pre-tokenizers ByteLevel, Metaspace, Split and Digits");
  }
}

// For the prepend_scheme "first", the library checks whether a piece begins at position 0 of the original text. After a
// step that deletes the first characters, no piece begins there. Tessera does not keep original positions, so it
// rejects "first" after a step that may delete characters.
void check_first_prefix(const TokenizerJson& result) {
  const bool deletes = std::ranges::any_of(result.normalizer, [](const NormalizerStep& step) {
    return step.kind == NormalizerStep::Kind::replace && (step.replace.content.empty() || step.replace.is_regex);
  });
  const char* before = deletes ? "a Replace normalizer that can delete text" : nullptr;
  for (const SplitStep& step : result.steps) {
    if (step.kind == SplitStep::Kind::split && step.behavior == SplitBehavior::removed && !before) {
      before = "a Split with the behavior Removed";
    }
    if (!before || step.kind != SplitStep::Kind::metaspace || step.prefix != MetaspacePrefix::first) continue;
    throw InputError(step.where, fmt::format("prepend_scheme \"first\" is not supported after {}", before),
                     kKindsOfTokenizers);
  }
}

void read_decoder(const Node& node, std::vector<DecoderStep>& steps) {
  using Kind = DecoderStep::Kind;
  const std::string type = node.type();
  if (type == "Sequence") {
    for (const Node& part : elements(node, "decoders")) read_decoder(part, steps);
  } else if (type == "ByteLevel") {
    steps.push_back({.kind = Kind::byte_level});
  } else if (type == "Replace") {
    steps.push_back({.kind = Kind::replace, .replace = read_replace(node)});
  } else if (type == "ByteFallback") {
    steps.push_back({.kind = Kind::byte_fallback});
  } else if (type == "Fuse") {
    steps.push_back({.kind = Kind::fuse});
  } else if (type == "Strip") {
    steps.push_back({.kind = Kind::strip,
                     .character = character_of(node.at("content")),
                     .start = node.at("start").count(),
                     .stop = node.at("stop").count()});
  } else if (type == "Metaspace") {
    steps.push_back({.kind = Kind::metaspace,
                     .character = character_of(node.at("replacement")),
                     .drops_first = read_metaspace_prefix(node) != MetaspacePrefix::never});
  } else {
    node.fail("the decoder is of type " + quoted_token(type),
              std::string(kKindsOfTokenizers) +
                  " with the decoders ByteLevel, Metaspace, Replace, ByteFallback, Fuse and Strip");
  }
}

std::vector<int32_t> ids_of_special(const Node& processor, const std::string& name) {
  const Node special = processor.at("special_tokens").at(name.c_str());
  std::vector<int32_t> ids;
  for (const Node& id : elements(special, "ids")) {
    const size_t value = id.count();
    if (value > INT32_MAX) id.fail("the id " + std::to_string(value) + " is too large");
    ids.push_back(static_cast<int32_t>(value));
  }
  return ids;
}

// A template such as "<s> $A </s>". Later processors put their ids around the ids of earlier processors.
void read_template(const Node& node, SpecialFrame& frame) {
  const Node single = node.at("single");
  std::vector<int32_t> before, after;
  bool has_text = false;
  for (const Node& piece : elements(node, "single")) {
    if (piece.has("SpecialToken")) {
      const auto ids = ids_of_special(node, piece.at("SpecialToken").at("id").text());
      auto& side = has_text ? after : before;
      side.insert(side.end(), ids.begin(), ids.end());
      continue;
    }
    const Node sequence = piece.at("Sequence").at("id");
    if (sequence.text() != "A" || has_text) {
      single.fail("the template must contain {\"Sequence\": {\"id\": \"A\"}} exactly once");
    }
    has_text = true;
  }
  if (!has_text) single.fail("the template must contain {\"Sequence\": {\"id\": \"A\"}} exactly once");
  frame.before.insert(frame.before.begin(), before.begin(), before.end());
  frame.after.insert(frame.after.end(), after.begin(), after.end());
  frame.where = node.where;
}

void read_post_processor(const Node& node, SpecialFrame& frame) {
  const std::string type = node.type();
  if (type == "Sequence") {
    for (const Node& part : elements(node, "processors")) read_post_processor(part, frame);
  } else if (type == "TemplateProcessing") {
    read_template(node, frame);
  } else if (type != "ByteLevel") {  // ByteLevel changes offsets, not ids
    node.fail("the post-processor is of type " + quoted_token(type),
              std::string(kKindsOfTokenizers) + " with the post-processors TemplateProcessing and ByteLevel");
  }
}

}  // namespace

void read_tokenizer_steps(const TokenizerNode& root, TokenizerJson& result) {
  if (root.has("normalizer")) read_normalizer(root.at("normalizer"), result.normalizer);
  if (root.has("pre_tokenizer")) read_pre_tokenizer(root.at("pre_tokenizer"), result);
  check_first_prefix(result);
  if (!root.has("decoder")) throw InputError(root.child("decoder"), "the decoder is missing", kKindsOfTokenizers);
  read_decoder(root.at("decoder"), result.decoder);
  if (root.has("post_processor")) read_post_processor(root.at("post_processor"), result.frame);
}

}  // namespace tessera
