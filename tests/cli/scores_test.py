"""Exact match and F1: the program's scores equal an independent implementation of SQuAD 2.0's rules on drawn predictions.

The model of this test is a table: each question begins with a token of its own, and this token decides the generated
answer. The prompt is cut after this token, so the test chooses the prediction of every question."""
import array
import collections
import json
import os
import random
import re
import string

from tessera_cli import main
from tiny_job import TinyJobTest, jsonl, safetensors

WIDTH = 96
EOS = 2
PARTS = ["the", "a", "No", "no answer", "Answer", ".", "?!", "-", "", "red", "Red", "blue sea", "sea-salt", "1,000", "x_y"]
FIXED = ["", "No Answer", "no answer.", "The No-Answer", " No  ANSWER ", "No", "Answer", "the", "...", "no answers"]
# The ways to write that a question has no answer, and the text that says so.
NO_ANSWER = [{"answers": []}, {"answers": [], "is_impossible": True}, {"is_impossible": True}, {"answers": None},
             {"answers": {"text": [], "answer_start": []}}, {"answers": {"text": []}, "is_impossible": False},
             {"answers": [], "is_impossible": True, "plausible_answers": [{"text": "red", "answer_start": 0}]},
             {"answers": {"text": ["No Answer"]}}, {"answers": [{"text": "no answer."}]}]


def words(text):
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def workshop_words(text):
    text = re.sub(r"\b(a|an|the)\b", " ", text.lower())
    return "".join(c for c in text if c not in string.punctuation).split()


def f1(common, prediction, reference):
    return 2 * common / (len(prediction) + len(reference)) if common else 0.0


def official(prediction, references):
    """Exact match and F1 by the rules of SQuAD 2.0."""
    best = (0.0, 0.0)
    predicted = words(prediction)
    for reference in [r for r in map(words, references) if r] or [[]]:
        exact = float(predicted == reference)
        common = sum((collections.Counter(predicted) & collections.Counter(reference)).values())
        both = f1(common, predicted, reference) if predicted and reference else exact
        best = (max(best[0], exact), max(best[1], both))
    return best


def workshop(prediction, references):
    """Exact match and F1 by the rules of the workshop."""
    predicted, reference = workshop_words(prediction), workshop_words((references or ["No Answer"])[0])
    return float(predicted == reference), f1(len(set(predicted) & set(reference)), predicted, reference)


def means(scores):
    """{key: value} as in SQuAD 2.0's official script, for scores (has answer, exact, F1)."""
    result = {}
    for name, chosen in [("", scores), ("HasAns_", [s for s in scores if s[0]]), ("NoAns_", [s for s in scores if not s[0]])]:
        if not chosen:
            continue
        result[name + "exact" if name else "exact_match"] = sum(s[1] for s in chosen) / len(chosen)
        result[name + "f1"] = sum(s[2] for s in chosen) / len(chosen)
        if name:
            result[name + "total"] = len(chosen)
    return result


class Scores(TinyJobTest):
    QUESTIONS = 400

    def setUp(self):
        super().setUp()
        self.source = random.Random(3)
        self.raw = [self.text() if self.source.random() < 0.6 else self.source.choice(FIXED) for _ in range(self.QUESTIONS)]
        self.rows = [self.row(i) for i in range(self.QUESTIONS)]
        self.make_model()
        prefix = self.succeeds("tokenize", "--tokenizer", "model", "--prompt", "Question: <q0>").split()
        self.options = ["--truncation", "right", "--max-length", str(len(prefix)), "--objective", "causal_lm",
                        "--eval-generation", "--max-new-tokens", "3", "--eval-batch-size", "64", "--threads", "1"]

    def text(self):
        text = " ".join(self.source.choices(PARTS, k=self.source.choice([1, 1, 2, 3])))
        return text if text.strip() else ""

    def row(self, i):
        row = {"id": f"q{i}", "question": f"<q{i}>", "context": "There is no answer."}
        if self.source.random() < 0.5:
            return row | self.source.choice(NO_ANSWER)
        texts = [t for t in (self.text() for _ in range(self.source.choice([1, 1, 2, 3]))) if t] or ["the"]
        if self.source.random() < 0.4 and self.raw[i]:
            texts.insert(self.source.randrange(len(texts) + 1), self.raw[i])
        return row | {"context": " | ".join(texts), "answers": {"text": texts}}

    def make_model(self):
        """A Llama whose next token depends only on the last token: <q7> is followed by the token of the seventh answer,
        and every answer by the end."""
        answers = sorted(set(self.raw) - {""})
        tokenizer = self.json_of("tok", "tokenizer.json")
        id_of = dict(tokenizer["model"]["vocab"])
        for content in [f"<q{i}>" for i in range(self.QUESTIONS)] + answers:
            if content not in id_of:
                id_of[content] = len(id_of)
                tokenizer["added_tokens"].append({
                    "id": id_of[content], "content": content, "single_word": False, "lstrip": False, "rstrip": False,
                    "normalized": False, "special": False})
        os.mkdir(self.path("model"))
        self.write("model/tokenizer.json", json.dumps(tokenizer))
        vocabulary = len(id_of)

        def code(token):
            source = random.Random(token)
            return [source.choice([-1.0, 1.0]) for _ in range(WIDTH)]

        follows = {id_of[answer]: EOS for answer in answers}
        follows |= {id_of[f"<q{i}>"]: id_of[raw] if raw else EOS for i, raw in enumerate(self.raw)}
        embedding, head = array.array("f", bytes(4 * vocabulary * WIDTH)), array.array("f", bytes(4 * vocabulary * WIDTH))
        for token in range(vocabulary):
            embedding[token * WIDTH:(token + 1) * WIDTH] = array.array("f", code(follows.get(token, 0)))
        for token in set(follows.values()):
            head[token * WIDTH:(token + 1) * WIDTH] = array.array("f", code(token))
        tensors = {"model.embed_tokens.weight": ([vocabulary, WIDTH], embedding), "lm_head.weight": ([vocabulary, WIDTH], head)}
        for name, shape in [("self_attn.q_proj", [WIDTH, WIDTH]), ("self_attn.k_proj", [WIDTH, WIDTH]),
                            ("self_attn.v_proj", [WIDTH, WIDTH]), ("self_attn.o_proj", [WIDTH, WIDTH]),
                            ("mlp.gate_proj", [8, WIDTH]), ("mlp.up_proj", [8, WIDTH]), ("mlp.down_proj", [WIDTH, 8])]:
            tensors[f"model.layers.0.{name}.weight"] = (shape, array.array("f", bytes(4 * shape[0] * shape[1])))
        for name in ["model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm"]:
            tensors[f"{name}.weight"] = ([WIDTH], array.array("f", [1.0] * WIDTH))
        self.write("model/model.safetensors",
                   safetensors({name: ("F32", shape, data.tobytes()) for name, (shape, data) in tensors.items()}))
        self.write("model/config.json", json.dumps({
            "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": vocabulary, "hidden_size": WIDTH,
            "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
            "rms_norm_eps": 1e-6, "hidden_act": "silu", "max_position_embeddings": 512, "rope_theta": 10000.0,
            "tie_word_embeddings": False, "torch_dtype": "float32", "bos_token_id": 1, "eos_token_id": EOS}))

    def evaluate(self, file, *options):
        """The report and the predictions of `tessera eval`."""
        report = json.loads(self.succeeds("eval", "--model", "model", "--eval-dataset", file, *self.options, *options,
                                          "--json", "--output-dir", "measured"))
        self.assertEqual(report, self.json_of("measured", "eval.json"))
        return report, self.json_of("measured", "predictions.json")

    def expected(self, no_answer, score=None):
        """The predictions, and the scores of the predictions. `score` scores the generated texts instead."""
        def says_so(text):
            return text == no_answer or words(text) == words(no_answer) != []
        predictions, scores = {}, []
        for row, raw in zip(self.rows, self.raw):
            answers = row.get("answers") or []
            references = answers["text"] if isinstance(answers, dict) else [answer["text"] for answer in answers]
            if all(map(says_so, references)):
                references = []
            predictions[row["id"]] = "" if says_so(raw.strip()) else raw.strip()
            one = score(raw.strip(), references) if score else official(predictions[row["id"]], references)
            scores.append((bool(references), *one))
        return predictions, means(scores)

    def assert_scores(self, record, expected, suffix=""):
        for key, value in expected.items():
            self.assertAlmostEqual(record[key + suffix], value, places=12, msg=key)

    def test_scores_are_those_of_squad(self):
        self.write("rows.jsonl", jsonl(self.rows))
        self.write("squad.json", json.dumps({"version": "v2.0", "data": [{"title": "t", "paragraphs": [
            {"context": row["context"], "qas": [{k: v for k, v in row.items() if k != "context"}]} for row in self.rows]}]}))
        for file, no_answer in [("rows.jsonl", "No Answer"), ("squad.json", "No Answer"), ("rows.jsonl", "red"),
                                ("rows.jsonl", "")]:
            with self.subTest(file=file, no_answer=no_answer):
                report, predictions = self.evaluate(file, "--unanswerable-text", no_answer)
                written, scores = self.expected(no_answer)
                self.assertEqual(predictions, written)
                self.assert_scores(report, scores)
                self.assertGreater(min(scores["HasAns_total"], scores["NoAns_total"]), 100)
                self.assertTrue(0 < scores["NoAns_exact"] < 1 and 0 < scores["HasAns_exact"] < scores["HasAns_f1"] < 1, scores)
        report, predictions = self.evaluate("rows.jsonl", "--scoring", "workshop")
        self.assertEqual(predictions, self.expected("No Answer")[0])
        self.assert_scores(report, self.expected("No Answer", workshop)[1])
        only = [row for row in self.rows if "answers" in row and not row["answers"]]
        self.write("none.jsonl", jsonl(only))
        report, predictions = self.evaluate("none.jsonl")
        self.assertEqual(report["exact_match"], sum(not words(p) for p in predictions.values()) / len(only))
        self.assertEqual((report["NoAns_f1"], report["NoAns_total"]), (report["f1"], len(only)))
        self.assertNotIn("HasAns_total", report)

    def test_every_place_with_scores_has_both_groups(self):
        self.write("rows.jsonl", jsonl(self.rows[:60]))
        self.rows = self.rows[:60]
        scores = self.expected("No Answer")[1]
        words = ["train", "--model", "model", "--dataset", "rows.jsonl", "--eval-dataset", "rows.jsonl", *self.options,
                 "--lr", "0", "--weight-decay", "0", "--max-steps", "2", "--eval-strategy", "steps", "--eval-steps", "1",
                 "--save-strategy", "steps", "--save-steps", "1", "--output-dir", "out"]
        out = self.succeeds(*words, "--eval-before")
        line = r"Evaluation Metrics: \{'exact_match': .*'HasAns_exact': .*'NoAns_total': \d+\}"
        self.assertEqual(len(re.findall(line, out)), 3)
        summary = self.json_of("out", "summary.json")
        self.assert_scores(summary, scores)
        self.assert_scores(summary, scores, "_before")
        for record in [*self.metrics("out", "eval"), *summary["epochs"]]:
            self.assert_scores(record, scores)
        self.fails(2, 'was made with unanswerable_text = "No Answer", and this run has ""', *words, "--unanswerable-text", "")
        report = json.loads(self.succeeds("report", "out", "--format", "json", "--html", "page.html"))
        row = report["tables"][0]["rows"][0]
        self.assertAlmostEqual(row["HasAns_f1"], scores["HasAns_f1"])
        self.assertAlmostEqual(row["NoAns_f1"], scores["NoAns_f1"])
        self.assertIn("NoAns F1", self.read("page.html").decode())
        self.succeeds(*words, "--max-steps", "3", "--eval-before")  # reads the scores from the checkpoint
        resumed = self.json_of("out", "summary.json")
        self.assertEqual(resumed["epochs"][:2], summary["epochs"])
        self.assert_scores(resumed, scores, "_before")


if __name__ == "__main__":
    main()
