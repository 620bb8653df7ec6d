// Reads conversations from rows of several formats. Every function throws RowFault, with the place and the key, if the
// row does not have the structure of its format.
#pragma once

#include <string>

#include "tessera/data/row_formats.h"

namespace tessera {

// A row with a list of messages under the key of `field` ("messages" or "conversations"). A message is
// {"role", "content"} or {"from", "value"}, with any further keys:
//   - the role: "system", "user", "assistant", "tool" and others that a template may know. Other programs' words for
//     these roles become these words: "human", "gpt", "model", "observation" and similar. A message of "function_call"
//     is a call of a tool by the assistant: {"name", "arguments"} or a list of calls, as JSON in a text.
//   - the content: a text, or a list of parts {"type": "text", "text"}, whose texts are joined. A message of the
//     assistant with "tool_calls" may have no content, and then has the content null.
//   - "tool_calls": [{"function": {"name", "arguments"}}] or [{"name", "arguments"}]. The arguments are an object, also
//     as JSON in a text. The conversation has the first form, with objects.
// Keys of a message with the value null are left out. The row may also have "system" (the text of a first message),
// "tools" (a list of objects, also as JSON in a text) and "chat_template_kwargs" (an object).
Conversation read_messages(const RowView& row, const char* field);

// A row {"instruction", "input", "output"}, perhaps with "system" and "history" ([[user, assistant], …]). The message
// of the user is the instruction, then a blank line and the input if there is one.
Conversation read_alpaca(const RowView& row);

// A row {"prompt", "completion"} with lists of messages, as in TRL. The completion has messages of the assistant and of
// tools. The messages of the assistant in the prompt get "train": false, because only the completion is learned.
Conversation read_prompt_messages(const RowView& row);

}  // namespace tessera
