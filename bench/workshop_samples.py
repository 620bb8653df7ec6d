"""Converts rows to samples as the training scripts of the workshop do: a prompt, the first answer, masked labels."""
IGNORED = -100


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
    """Returns lists of length `width`, padded on the right. Padding has no loss."""
    def pad(row, value):
        return row + [value] * (width - len(row))
    return {"input_ids": [pad(s["input_ids"], pad_id) for s in samples],
            "attention_mask": [pad([1] * len(s["input_ids"]), 0) for s in samples],
            "labels": [pad(s["labels"], IGNORED) for s in samples]}
