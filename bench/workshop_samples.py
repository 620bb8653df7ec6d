"""Makes samples from rows that have a question, a context and answers. The prompt of a sample has the same form as
in the workshop's scripts (recipes/workshop/README.md)."""
IGNORED = -100  # the label of a token that has no loss


def prompt_of(row):
    return f"Question: {row['question']} Context: {row['context']} Answer:"


def make_sample(tokenizer, row, objective, max_length):
    """Returns at most max_length ids, and one label for each id. The label is the id itself, because the model shifts
    the labels. With the objective `completion`, the labels of the prompt are IGNORED, so only the answer has a loss."""
    prompt = tokenizer(prompt_of(row))["input_ids"]
    answer = tokenizer(f" {row['answers']['text'][0]}{tokenizer.eos_token}")["input_ids"]
    ids = (prompt + answer)[:max_length]
    labels = ([IGNORED] * len(prompt) + answer)[:max_length] if objective == "completion" else list(ids)
    return {"input_ids": ids, "labels": labels}


def pad_batch(samples, width, pad_id):
    """Pads the lists of each sample on the right to the length `width`. Padding has no loss."""
    def pad(row, value):
        return row + [value] * (width - len(row))
    return {"input_ids": [pad(s["input_ids"], pad_id) for s in samples],
            "attention_mask": [pad([1] * len(s["input_ids"]), 0) for s in samples],
            "labels": [pad(s["labels"], IGNORED) for s in samples]}
