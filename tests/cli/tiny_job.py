"""A training job that takes a fraction of a second: generated questions, a trained tokenizer, a small BLOOM."""
import json
import os
import random
import struct
import subprocess

from tessera_cli import CliTest

BLOOM = {"architectures": ["BloomForCausalLM"], "model_type": "bloom", "vocab_size": 400, "hidden_size": 16, "n_layer": 2,
         "n_head": 2, "layer_norm_epsilon": 1e-5, "unk_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
         "pad_token_id": 3}
JOB = ["--model", "config.json", "--init", "random", "--tokenizer", "tok", "--dataset", "train.jsonl", "--lr", "1e-2",
       "--logging-steps", "1", "--threads", "1"]
OF_ANY_DEVICE = list(JOB)  # JOB without --device
ON_GPU = os.environ.get("TEST_DEVICE") == "cuda"
# The maximum number of ranks of a test. tools/gpu_tests.sh sets TEST_RANKS to the number of GPUs, because each rank
# needs its own GPU.
MOST_RANKS = int(os.environ.get("TEST_RANKS", 64))
if ON_GPU:
    JOB += ["--device", "cuda", "--precision", "fp32"]  # tests compare runs on CPUs and GPUs; the default is bf16
# Whether the device of the tests has products in fp8.
HAS_FLOAT8 = not ON_GPU or set(subprocess.run(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"],
                                              capture_output=True, text=True, check=True).stdout.split()) == {"9.0"}
EVALUATED = JOB + ["--eval-dataset", "eval.jsonl", "--eval-generation", "--max-new-tokens", "5"]
GPT = ["--model", "gpt", "--init", "random", "--tokenizer", "tok", "--dataset", "train.jsonl", "--threads", "1",
       "--logging-steps", "1", "--lr", "1e-2", "--hidden-size", "16", "--num-layers", "2", "--num-heads", "2",
       "--ff-dim", "32", "--vocab-size", "400"]
USAGE, INPUT, FAILED, OUT_OF_MEMORY = 2, 3, 1, 4  # exit codes


def questions(count, seed):
    """`count` rows with questions, in the format of Hugging Face data sets. The rows differ in length."""
    source = random.Random(seed)
    rows = []
    for i in range(count):
        a, b = source.sample(["Arlo", "Bryn", "Cora", "Dane", "Elio", "Faye", "Gwen", "Hugo"], 2)
        home, other = source.sample(["Oslo", "Lima", "Rome", "Kyiv", "Baku", "Doha"], 2)
        work = source.choice(["baker", "pilot", "tailor", "miner", "poet"])
        context = f"{a} lives in {home} and works as a {work}." + source.randrange(3) * f" {b} lives in {other}."
        question, answer = source.choice([(f"Where does {a} live?", home), (f"What is the work of {a}?", work)])
        rows.append({"id": f"q{i}", "context": context, "question": question,
                     "answers": {"text": [answer], "answer_start": [context.index(answer)]}})
    return rows


def with_last_data(words):
    """The words without each --dataset and --eval-dataset that a later one replaces. In Tessera, several of these flags add
    up. In a test, a flag after JOB replaces the flag in JOB."""
    for flag in ("--dataset", "--eval-dataset"):
        while words.count(flag) > 1:
            first = words.index(flag)
            words = [*words[:first], *words[first + 2:]]
    return words


def jsonl(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def without_timing(path):
    """The lines of a metrics.jsonl, without the values that depend on the clock."""
    with open(path, encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    for record in records:
        record.pop("timing", None)
    return [json.dumps(record) for record in records]


def read_tensors(path):
    """{name: (dtype, shape, bytes)} of a safetensors file."""
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]])
            for name, t in header.items()}


def safetensors(tensors):
    """The bytes of a safetensors file: the inverse of read_tensors."""
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def flip_a_bit(path, source):
    with open(path, "r+b") as file:
        data = bytearray(file.read())
        data[source.randrange(len(data))] ^= 1 << source.randrange(8)
        file.seek(0)
        file.write(data)


def cut(path):
    """Removes the last byte of a file."""
    os.truncate(path, os.path.getsize(path) - 1)


class TinyJobTest(CliTest):
    """The test's folder contains train.jsonl (22 questions), eval.jsonl (7), config.json and tok/tokenizer.json."""

    def setUp(self):
        super().setUp()
        self.write("train.jsonl", jsonl(questions(22, 1)))
        self.write("eval.jsonl", jsonl(questions(7, 2)))
        self.write("config.json", json.dumps(BLOOM))
        self.succeeds("tokenizer", "train", "--dataset", "train.jsonl", "--vocab-size", "400", "--output-dir", "tok")

    def run_tessera(self, *words, **options):
        return super().run_tessera(*with_last_data(list(words)), **options)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def read(self, *parts):
        with open(self.path(*parts), "rb") as file:
            return file.read()

    def json_of(self, *parts):
        return json.loads(self.read(*parts))

    def metrics(self, output, kind):
        """The records of one kind in an output folder's metrics.jsonl."""
        records = [json.loads(line) for line in self.read(output, "metrics.jsonl").splitlines()]
        return [record for record in records if record["kind"] == kind]

    def checkpoints(self, output):
        """The steps of the checkpoints in an output folder, ascending. Omits renamed checkpoints (see set_aside)."""
        names = [name[len("checkpoint-"):] for name in os.listdir(self.path(output)) if name.startswith("checkpoint-")]
        return sorted(int(name) for name in names if name.isdigit())

    def set_aside(self, output):
        """The names of renamed checkpoints and runs in an output folder."""
        return sorted(name for name in os.listdir(self.path(output))
                      if name.startswith("overwritten-run") or ".damaged" in name or ".superseded" in name)

    def train(self, output, *words, job=EVALUATED, **options):
        return self.succeeds("train", *job, "--output-dir", output, *words, **options)

    def assert_same_results(self, output, other):
        """Asserts that two runs have the same metrics and the same final model, bit for bit."""
        self.assertEqual(without_timing(self.path(output, "metrics.jsonl")),
                         without_timing(self.path(other, "metrics.jsonl")))
        self.assertEqual(self.read(output, "model", "model.safetensors"), self.read(other, "model", "model.safetensors"))

    def assert_tidy(self, output):
        """Asserts that an output folder contains no temporary file and no lock."""
        for folder, _, files in os.walk(self.path(output)):
            for name in [*files, os.path.basename(folder)]:
                self.assertNotRegex(name, r"\.tmp-|\.old-|lock$")

    def num_lines(self, output):
        """The number of lines in metrics.jsonl, or 0 if the file does not exist. Tests measure the progress of a
        run with this number, because times differ between machines."""
        try:
            return self.read(output, "metrics.jsonl").count(b"\n")
        except FileNotFoundError:
            return 0


class BadInputTest(TinyJobTest):
    """Tests of bad input: the error names file, key, value and remedy, and no half-written file remains."""

    def refuses(self, code, message, *words):
        """Expects that training into "out" fails with `code` and `message`, and leaves no file in "out"."""
        self.fails(code, message, "train", *JOB, "--output-dir", "out", *words)
        if os.path.exists(self.path("out")):
            self.assertEqual(os.listdir(self.path("out")), [])

    def write_json(self, name, value):
        return self.write(name, json.dumps(value))
