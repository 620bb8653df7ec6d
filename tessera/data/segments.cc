#include "tessera/data/segments.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera {

namespace {

using Ids = std::vector<int32_t>;

// Of tokens.
struct Range {
  int64_t begin, end;
};

// Chooses the part of a text that is kept around its answer: a range of `room` indices of `tokens`. `tokens` is the
// encoding of `text`. The answer is bytes [answer.begin, answer.end) of `text`.
//
// Tokens have no offsets into the text. Therefore the text before the answer and the text after it are also encoded
// separately (`before`, `behind`). The tokens that `before` and `tokens` have in common at the start are before the
// answer. The tokens that `behind` and `tokens` have in common at the end are after the answer. The tokens in between
// (`hull`) contain the answer. The middle of the answer is computed from the lengths of `before` and `behind`.
Range window_around(const Ids& tokens, std::string_view text, ByteRange answer, int64_t room, const EncodeFn& encode) {
  const Ids before = encode(TextPlace::inside, text.substr(0, static_cast<size_t>(answer.begin)));
  const Ids behind = encode(TextPlace::inside, text.substr(static_cast<size_t>(answer.end)));
  const int64_t size = std::ssize(tokens);
  const int64_t surely_before =
      std::mismatch(before.begin(), before.end(), tokens.begin(), tokens.end()).first - before.begin();
  const int64_t surely_behind =
      std::mismatch(behind.rbegin(), behind.rend(), tokens.rbegin(), tokens.rend()).first - behind.rbegin();
  const Range hull{surely_before, size - surely_behind};

  const int64_t middle_twice = std::ssize(before) + size - std::ssize(behind);
  int64_t begin = (middle_twice - room) / 2;
  if (hull.end - hull.begin <= room) begin = std::clamp(begin, hull.end - room, hull.begin);
  begin = std::clamp<int64_t>(begin, 0, size - room);
  return {begin, begin + room};
}

// One or more segments that are encoded together.
struct Group {
  size_t first, last;  // inclusive
  Ids ids;
  std::vector<size_t> ends{};  // of the tokens of each segment in `ids`, if some segments are answers and others not
};

TextPlace place_of(std::span<const Segment> segments, size_t segment) {
  if (segment > 0) return TextPlace::inside;
  return segments[0].is_written ? TextPlace::written : TextPlace::start;
}

Ids encode_one(const Segment& segment, TextPlace place, const EncodeFn& encode) {
  if (const auto* ids = std::get_if<Ids>(&segment.content)) return *ids;
  return encode(place, std::get<std::string>(segment.content));
}

bool continues(const Ids& ids, size_t at, std::span<const int32_t> part) {
  return at <= ids.size() && part.size() <= ids.size() - at &&
         std::equal(part.begin(), part.end(), ids.begin() + static_cast<std::ptrdiff_t>(at));
}

// Encodes the texts of segments [group.first, group.last] as one text, and finds the end of each in the tokens.
void encode_divided(std::span<const Segment> segments, const EncodeFn& encode, Group& group) {
  std::string text;
  for (size_t k = group.first; k <= group.last; ++k) text += std::get<std::string>(segments[k].content);
  // The text from byte `base` on was encoded as one text. Its tokens begin at group.ids[base_token].
  size_t base = 0, base_token = 0, at = 0;
  TextPlace base_place = place_of(segments, group.first);
  group.ids = encode(base_place, text);
  for (size_t k = group.first; k < group.last; ++k) {
    const std::string& own = std::get<std::string>(segments[k].content);
    const size_t token = group.ends.empty() ? 0 : group.ends.back();
    at += own.size();
    // Usually the text has the same tokens by itself. If not, perhaps it has them after the text before it.
    const Ids alone = encode(at == own.size() ? base_place : TextPlace::inside, own);
    if (continues(group.ids, token, alone)) {
      group.ends.push_back(token + alone.size());
      continue;
    }
    const Ids before = encode(base_place, std::string_view(text).substr(base, at - base));
    if (continues(group.ids, base_token, before) && base_token + before.size() >= token) {
      group.ends.push_back(base_token + before.size());
      continue;
    }
    group.ids.resize(token);
    group.ids.insert(group.ids.end(), alone.begin(), alone.end());
    group.ends.push_back(group.ids.size());
    base = at, base_token = group.ids.size(), base_place = TextPlace::inside;
    const Ids behind = encode(TextPlace::inside, std::string_view(text).substr(at));
    group.ids.insert(group.ids.end(), behind.begin(), behind.end());
  }
  group.ends.push_back(group.ids.size());
}

// Encodes each text with the texts that join it.
std::vector<Group> encode_groups(std::span<const Segment> segments, const EncodeFn& encode) {
  std::vector<Group> groups;
  for (size_t i = 0; i < segments.size(); ++i) {
    Group group{i, i, {}};
    bool is_divided = false;
    while (group.last + 1 < segments.size() && segments[group.last + 1].joins) {
      ++group.last;
      is_divided = is_divided || segments[group.last].is_answer != segments[i].is_answer;
    }
    if (group.last == i) {
      group.ids = encode_one(segments[i], place_of(segments, i), encode);
    } else if (is_divided) {
      encode_divided(segments, encode, group);
    } else {
      std::string text;
      for (size_t k = i; k <= group.last; ++k) text += std::get<std::string>(segments[k].content);
      group.ids = encode(place_of(segments, i), text);
    }
    i = group.last;
    groups.push_back(std::move(group));
  }
  return groups;
}

// The first `room` tokens of a text, or those around its middle.
Ids cut(const Segment& segment, Ids ids, int64_t room, const EncodeFn& encode) {
  const int64_t kept = std::min(room, std::ssize(ids));
  Range range{0, kept};
  if (segment.middle) range = window_around(ids, std::get<std::string>(segment.content), *segment.middle, kept, encode);
  return {ids.begin() + range.begin, ids.begin() + range.end};
}

}  // namespace

std::string prompt_text(std::string_view question, std::string_view context) {
  if (context.empty()) return fmt::format("Question: {} Answer:", question);
  return fmt::format("Question: {} Context: {} Answer:", question, context);
}

std::string prompt_text(const Example& example) {
  if (const Completion* row = example.completion()) return row->prompt;
  TESSERA_ASSERT(example.question());
  const Question& question = *example.question();
  return prompt_text(question.question, question.context);
}

std::vector<Segment> segments_of(const Example& example, const std::string& answer) {
  if (const PlainText* text = example.text()) return {{.content = text->text, .is_answer = true}};
  std::vector<Segment> segments;
  const Question* question = example.question();
  if (!question || question->context.empty()) {
    segments.push_back({.content = prompt_text(example)});
  } else {
    Segment context{.content = " " + question->context, .joins = true, .may_be_cut = true};
    if (question->answerable) {
      const int64_t begin = question->answer_start + 1;  // 1 for the space before the context
      context.middle = {begin, begin + std::ssize(question->answers.front())};
    }
    segments.push_back({.content = "Question: " + question->question + " Context:"});
    segments.push_back(std::move(context));
    segments.push_back({.content = " Answer:", .joins = true});
  }
  if (answer.empty()) return segments;
  segments.push_back({.content = question ? " " + answer : answer, .is_answer = true});
  return segments;
}

EncodedSegments encode_segments(std::span<const Segment> segments, const EncodeFn& encode, int64_t max_length) {
  EncodedSegments result;
  std::vector<Group> groups = encode_groups(segments, encode);
  for (const Group& group : groups) result.num_tokens += std::ssize(group.ids);
  if (max_length > 0 && result.num_tokens > max_length) {
    const auto shrinks = [&](const Group& group) {
      return std::any_of(segments.begin() + static_cast<std::ptrdiff_t>(group.first),
                         segments.begin() + static_cast<std::ptrdiff_t>(group.last) + 1,
                         [](const Segment& segment) { return segment.may_be_cut; });
    };
    const auto group = std::find_if(groups.begin(), groups.end(), shrinks);
    result.num_least = result.num_tokens;
    result.fits = group != groups.end();
    if (!result.fits) return result;
    result.num_least -= std::ssize(group->ids);
    std::vector<Ids> parts;
    size_t cut_part = 0;
    for (size_t i = group->first; i <= group->last; ++i) {
      parts.push_back(encode_one(segments[i], place_of(segments, i), encode));
      if (segments[i].may_be_cut) {
        cut_part = parts.size() - 1;
      } else {
        result.num_least += std::ssize(parts.back());
      }
    }
    result.fits = result.num_least <= max_length;
    if (!result.fits) return result;
    Ids& shrunk = parts[cut_part];
    shrunk = cut(segments[group->first + cut_part], std::move(shrunk), max_length - result.num_least, encode);
    group->ids.clear();
    for (const Ids& part : parts) group->ids.insert(group->ids.end(), part.begin(), part.end());
  }
  for (const Group& group : groups) {
    const size_t begin = result.ids.size();
    result.ids.insert(result.ids.end(), group.ids.begin(), group.ids.end());
    for (size_t k = 0; k < group.ends.size(); ++k) {
      result.is_answer.resize(begin + group.ends[k], segments[group.first + k].is_answer);
    }
    result.is_answer.resize(result.ids.size(), segments[group.first].is_answer);
  }
  return result;
}

}  // namespace tessera
