#include "tessera/data/tokenizer_normalize.h"

#include <utility>

namespace tessera {

Replacer::Replacer(ReplaceRule rule) : rule_(std::move(rule)) {
  if (rule_.is_regex) matcher_ = make_matcher(rule_.pattern, rule_.where);
}

std::string Replacer::operator()(std::string_view text) const {
  std::string result;
  size_t done = 0;
  const auto replace = [&](size_t begin, size_t end) {
    result += text.substr(done, begin - done);
    result += rule_.content;
    done = end;
  };
  if (matcher_) {
    std::vector<Span> matches;
    matcher_->find(text, matches);
    for (const Span& match : matches) replace(match.begin, match.end);
  } else {
    const std::string& literal = rule_.pattern;
    for (size_t at; (at = text.find(literal, done)) != std::string_view::npos;) replace(at, at + literal.size());
  }
  result += text.substr(done);
  return result;
}

Normalizer::Normalizer(const std::vector<NormalizerStep>& steps) {
  for (const NormalizerStep& step : steps) {
    const bool replaces = step.kind == NormalizerStep::Kind::replace;
    steps_.push_back(
        {step.kind, step.form, step.prefix, replaces ? std::make_unique<const Replacer>(step.replace) : nullptr});
  }
}

std::string Normalizer::operator()(std::string_view text, bool inside) const {
  std::string current(text);
  for (const Step& step : steps_) {
    switch (step.kind) {
      case NormalizerStep::Kind::form:
        current = normalize(current, step.form);
        break;
      case NormalizerStep::Kind::prepend:
        if (!inside && !current.empty()) current.insert(0, step.prefix);
        break;
      case NormalizerStep::Kind::replace:
        current = (*step.replacer)(current);
        break;
    }
  }
  return current;
}

}  // namespace tessera
