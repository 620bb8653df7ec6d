"""generate: random draws, generation_config.json, files of prompts, and text that is printed while it is generated."""
import json
import os
import pty
import subprocess
from collections import Counter

from tessera_cli import PROGRAM, RUN_LIMIT_S, main
from tiny_job import INPUT, JOB, ON_GPU, USAGE, TinyJobTest, jsonl, questions

SAMPLED = ["--temperature", "1.5", "--max-new-tokens", "20"]


class GenerateTest(TinyJobTest):
    def setUp(self):
        super().setUp()
        self.train("out", "--max-steps", "4", "--save-strategy", "no", job=JOB)
        self.generate = ["generate", "--model", "out/model", *(["--device", "cuda", "--precision", "fp32"] if ON_GPU else [])]

    def configure(self, **keys):
        """Writes generation_config.json into the model's folder."""
        self.write_json("out/model/generation_config.json", keys)

    def write_json(self, name, value):
        return self.write(name, json.dumps(value))

    def result(self, *words):
        return json.loads(self.succeeds(*self.generate, "--json", *words))

    def lines(self, *words):
        return [json.loads(line) for line in self.succeeds(*self.generate, *words).splitlines()]

    def notes(self, *words):
        code, _, err = self.run_tessera(*self.generate, "--prompt", "Who", *words)
        self.assertEqual(code, 0, err)
        return err


class Draws(GenerateTest):
    def test_only_settings_and_seed_decide(self):
        prompt = ["--prompt", "Where does", "--max-new-tokens", "20"]
        greedy = self.result(*prompt)
        for words in [["--temperature", "0"], ["--no-do-sample"], ["--top-k", "1"], ["--top-p", "0"],
                      ["--temperature", "1e-6"], ["--seed", "7"]]:
            self.assertEqual(self.result(*prompt, *words)["ids"], greedy["ids"], words)
        drawn = self.result(*prompt, *SAMPLED)
        self.assertNotEqual(drawn["ids"], greedy["ids"])
        self.assertEqual(self.result(*prompt, *SAMPLED)["ids"], drawn["ids"])
        self.assertEqual(self.result(*prompt, *SAMPLED, "--seed", "42", "--threads", "1")["ids"], drawn["ids"])
        self.assertNotEqual(self.result(*prompt, *SAMPLED, "--seed", "43")["ids"], drawn["ids"])
        for words in [["--do-sample"], ["--sample"], ["--top-k", "400"], ["--top-p", "1"]]:
            self.assertEqual(self.result(*prompt, *words)["ids"], self.result(*prompt, "--temperature", "1")["ids"], words)

    def test_every_batch_size_gives_the_same_texts(self):
        self.write("prompts.jsonl", jsonl([{"prompt": text} for text in ["Who", "Where does Arlo", "a", "Who", "b c"]]))
        words = ["--prompts", "prompts.jsonl", *SAMPLED]
        all_at_once = self.lines(*words)
        self.assertEqual(len({tuple(line["ids"]) for line in all_at_once}), 5)  # equal prompts get different texts
        for size in ["1", "2", "3"]:
            self.assertEqual(self.lines(*words, "--eval-batch-size", size), all_at_once)
        # The place of a prompt in the file selects its random draws. A prompt from the command line gets the draws of
        # the first prompt of a file.
        self.assertEqual(self.result("--prompt", "Who", *SAMPLED)["ids"], all_at_once[0]["ids"])

    def test_every_device_and_number_of_threads_gives_the_same_texts(self):
        """The logits of CPU and GPU differ by rounding. In this test, the differences change no draw."""
        self.write("prompts.jsonl", jsonl([{"prompt": text} for text in ["Who", "Where does Arlo", "a", "Who", "b c"]]))
        words = ["generate", "--model", "out/model", "--prompts", "prompts.jsonl", *SAMPLED, "--top-k", "200", "--top-p", "0.95"]
        on_cpu = self.succeeds(*words, "--device", "cpu", "--threads", "1")
        self.assertEqual(self.succeeds(*words, *(["--device", "cuda", "--precision", "fp32"] if ON_GPU else ["--threads", "3"])), on_cpu)

    def test_contradictions(self):
        prompt = [*self.generate, "--prompt", "a"]
        for words, message in [
            (["--temperature", "0", "--top-k", "5"], "--top-k: contradicts temperature 0 (--temperature), which takes the "
             "most likely token. Give a --temperature above 0, or leave one of the two out"),
            (["--temperature", "0", "--top-p", "0.5"], "--top-p: contradicts temperature 0 (--temperature)"),
            (["--temperature", "0", "--do-sample"], "--do-sample: contradicts temperature 0 (--temperature)"),
            (["--no-do-sample", "--temperature", "0.5"],
             "--temperature: draws tokens at random, which contradicts do_sample false (--do-sample). Leave out one"),
            (["--no-do-sample", "--top-k", "5"], "--top-k: draws tokens at random, which contradicts do_sample false"),
            (["--temperature", "-1"], "--temperature: must be at least 0"),
            (["--temperature", "nan"], "--temperature: "),
            (["--top-k", "-1"], "--top-k: must be at least 0"),
            (["--top-p", "1.5"], "--top-p: must be at most 1"),
            (["--stream", "on", "--json"], "--stream: contradicts json. Remove --stream. Only a single text on standard"),
            (["--stream", "on", "--output", "a.txt"], "--stream: contradicts output"),
            (["--prompts", "a.jsonl"], "--prompts: contradicts prompt. Give a single prompt, or a file of prompts"),
            (["--eval-batch-size", "2"], "--eval-batch-size: does nothing with a single prompt. Give --prompts"),
            (["--output", "out"], '--output: "out" is not a regular file'),
        ]:
            with self.subTest(words=words):
                self.fails(USAGE, message, *prompt, *words)
        self.fails(USAGE, "--stream: contradicts prompts", *self.generate, "--prompts", "a", "--stream", "on")
        # top_k contradicts temperature 0. A configuration file may contain it nevertheless, because other runs may use
        # the same file.
        self.write("run.toml", "top_k = 5\n")
        self.succeeds(*self.generate[:1], "run.toml", *self.generate[1:], "--prompt", "a", "--temperature", "0")


class GenerationConfig(GenerateTest):
    def test_numbers_are_defaults_of_draws(self):
        self.configure(do_sample=True, temperature=1.5, top_k=30, top_p=0.9, eos_token_id=2)
        prompt = ["--prompt", "Where does"]
        greedy = self.result(*prompt)["ids"]
        self.assertEqual(self.result(*prompt, "--temperature", "0")["ids"], greedy)
        self.assertIn("Each token is the most likely one. Give --do-sample to draw tokens at random with the values of "
                      "out/model/generation_config.json\n", self.notes())
        given = ["--temperature", "1.5", "--top-k", "30", "--top-p", "0.9"]
        drawn = self.result(*prompt, "--do-sample")["ids"]
        self.assertEqual(self.result(*prompt, *given)["ids"], drawn)
        self.assertNotEqual(drawn, greedy)
        self.assertIn("Sampling with temperature 1.5, top_k 30, top_p 0.9 and seed 42\n", self.notes("--do-sample"))
        self.assertIn("Sampling with temperature 0.7, top_k all, top_p 0.9 and seed 3\n",
                      self.notes("--temperature", "0.7", "--top-k", "0", "--seed", "3"))
        self.configure(temperature=0, eos_token_id=2)
        self.assertEqual(self.result(*prompt)["ids"], greedy)
        self.succeeds(*self.generate, *prompt, "--do-sample", "--temperature", "1")
        self.fails(USAGE, 'out/model/generation_config.json: "temperature" is 0, so each token would be the most likely '
                   "one, but random draws are requested. Give --temperature", *self.generate, *prompt, "--do-sample")

    def test_every_end_id_ends_a_text(self):
        words = ["--prompt", "Where does", *SAMPLED]
        ids = self.result(*words)["ids"]
        self.assertEqual(len(ids), 20)
        self.assertEqual(self.result(*words)["finish_reason"], "length")
        rare = min(Counter(ids).items(), key=lambda item: (item[1], -ids.index(item[0])))[0]
        other = next(i for i in range(399, 0, -1) if i not in ids)
        for ends in [rare, [2, rare], [other, rare, rare]]:
            self.configure(eos_token_id=ends)
            ended = self.result(*words)
            self.assertEqual(ended["ids"], ids[:ids.index(rare)])
            self.assertEqual(ended["finish_reason"], "stop")
        self.configure(eos_token_id=other)
        self.assertEqual(self.result(*words)["ids"], ids)

    def test_what_is_not_applied(self):
        self.configure(repetition_penalty=1.05, num_beams=1, top_h=None)
        self.assertIn("warning: out/model/generation_config.json: Tessera does not use these keys: repetition_penalty 1.05\n", self.notes())
        self.configure(eos_token_id=2)
        self.assertEqual(self.notes(), "")

    def test_bad_files(self):
        evaluation = ["eval", "--model", "out/model", "--eval-dataset", "eval.jsonl"]
        for text, message in [("{", ":1:2: not valid JSON"), ("[]", ": is not a JSON object")]:
            self.write("out/model/generation_config.json", text)
            for words in [[*self.generate, "--prompt", "a"], evaluation]:
                self.fails(INPUT, "out/model/generation_config.json" + message, *words)

    def test_values_are_errors_only_where_they_are_used(self):
        self.configure(eos_token_id=[2, 400], pad_token_id=-1, top_p=2, top_k=-1, temperature="hot")
        faults = ['"eos_token_id" contains 400, not a whole number from 0 to 399',
                  '"pad_token_id" is -1, not a whole number from 0 to 399', '"top_p" is 2, not a number from 0 to 1',
                  '"top_k" is -1, not a whole number from 0 to 2147483647', '"temperature" is "hot", not a number from 0 to']
        for words in [[*self.generate, "--prompt", "a"],
                      ["eval", "--model", "out/model", "--eval-dataset", "eval.jsonl"]]:
            code, _, err = self.run_tessera(*words)
            self.assertEqual(code, 0, err)
            for fault in faults:
                self.assertIn(f"warning: out/model/generation_config.json: {fault}", err)
            self.assertEqual(err.count("warning: "), 5, err)
        given = ["--do-sample", "--temperature", "1", "--top-k", "5", "--top-p", "0.9"]
        self.succeeds(*self.generate, "--prompt", "a", *given)
        for i, fault in [(1, '"temperature" is "hot"'), (3, '"top_k" is -1'), (5, '"top_p" is 2')]:
            self.fails(INPUT, f"out/model/generation_config.json: {fault}", *self.generate, "--prompt", "a", *given[:i],
                       *given[i + 2:])

    def test_a_trained_model_keeps_the_file(self):
        text = '{"do_sample": true,\n "eos_token_id": [2, 3], "temperature": 0.6, "new_key": [1.50]}\n'
        self.write("out/model/generation_config.json", text)
        self.succeeds("train", "--model", "out/model", "--dataset", "train.jsonl", "--max-steps", "1", "--output-dir", "more")
        self.assertEqual(self.read("more", "model", "generation_config.json").decode(), text)
        self.assertEqual(self.json_of("more", "model", "config.json")["eos_token_id"], 2)


class PromptFiles(GenerateTest):
    def test_results_are_json_lines(self):
        rows = questions(3, 2)
        self.write("prompts.jsonl", "\n" + jsonl([{"id": 7, "prompt": "Wo \u00e9"}, *rows, {"prompt": "b"}]))
        words = ["--prompts", "prompts.jsonl", "--max-new-tokens", "6"]
        lines = self.lines(*words)
        self.assertEqual([line.get("id") for line in lines], [7, "q0", "q1", "q2", None])
        self.assertEqual(list(lines[0]), ["id", "prompt", "text", "ids", "finish_reason", "num_prompt_tokens"])
        self.assertEqual(lines[0]["prompt"], "Wo \u00e9")
        self.assertEqual(lines[1]["prompt"], f"Question: {rows[0]['question']} Context: {rows[0]['context']} Answer:")
        for line, row in zip(lines[1:], rows):
            alone = self.result("--question", row["question"], "--context", row["context"], "--max-new-tokens", "6")
            for key in ["text", "ids", "finish_reason", "num_prompt_tokens"]:
                self.assertEqual(line[key], alone[key])
        self.assertEqual(self.succeeds(*self.generate, *words, "--output", "new/results.jsonl"), "")
        self.assertEqual([json.loads(line) for line in self.read("new", "results.jsonl").splitlines()], lines)
        self.assertEqual(self.lines(*words, "--json"), lines)

    def test_output_of_one_prompt(self):
        words = ["--prompt", "Who", "--max-new-tokens", "5"]
        text = self.succeeds(*self.generate, *words)
        self.write("text", "an older text that is longer than the new one")
        self.assertEqual(self.succeeds(*self.generate, *words, "--output", "text"), "")
        self.assertEqual(self.read("text").decode(), text)

    def test_the_empty_prompt(self):
        """With a BOS token, the model begins from this token: the same text with --prompt and with --prompts."""
        empty = ["--prompt", "", "--max-new-tokens", "5"]
        self.fails(USAGE, "--prompt: the prompt is empty, and the tokenizer puts no BOS token before it. Give a text",
                   *self.generate, *empty)
        tokenizer = self.json_of("out/model/tokenizer.json")
        tokenizer["post_processor"] = {
            "type": "TemplateProcessing", "pair": [],
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
        self.write_json("out/model/tokenizer.json", tokenizer)
        single = self.result(*empty)
        self.write("empty.jsonl", '{"prompt": ""}')
        [line] = self.lines("--prompts", "empty.jsonl", "--max-new-tokens", "5")
        self.assertEqual((single["num_prompt_tokens"], single["ids"]), (1, line["ids"]))
        self.fails(USAGE, "--prompt: contradicts question", *self.generate, *empty, "--question", "Who?", "--context", "a")
        self.fails(USAGE, "--prompt: contradicts prompts", *self.generate, *empty, "--prompts", "empty.jsonl")
        self.assertEqual(self.succeeds("tokenize", "--tokenizer", "out/model", "--prompt", ""), "1\n")

    def test_stop_strings(self):
        self.write("prompts.jsonl", jsonl([{"prompt": text} for text in ["Who", "Where does Arlo", "a"]]))
        words = ["--prompts", "prompts.jsonl", *SAMPLED]
        plain = self.lines(*words)
        stop = plain[1]["text"][4:8]
        self.assertEqual(len(stop), 4)
        for size in ["1", "2", "3"]:
            for line, before in zip(self.lines(*words, "--stop", "never there", stop, "--eval-batch-size", size), plain):
                cut = before["text"].split(stop)[0]
                self.assertEqual(line["text"], cut)
                if cut == before["text"]:
                    self.assertEqual(line, before)
                    continue
                self.assertEqual(line["finish_reason"], "stop")
                self.assertEqual(line["ids"], before["ids"][:len(line["ids"])])
        words = ["--prompt", "Who", *SAMPLED]
        whole = self.succeeds(*self.generate, *words)
        for stop in [whole[2:5], whole[-3:-1]]:
            expected = whole[:whole.index(stop)] + "\n"
            for more in [["--stream", "on"], ["--stream", "off"]]:
                self.assertEqual(self.succeeds(*self.generate, *words, f"--stop={stop}", *more), expected)
            result = self.result(*words, f"--stop={stop}")
            self.assertEqual((result["text"] + "\n", result["finish_reason"]), (expected, "stop"))

    def test_bad_files(self):
        for text, message in [('{"prompt": "a"}\n{"prompt": 3}\n', 'bad.jsonl:2: "prompt" must be a string, found 3. Give one JSON '
                               'object per line, as {"prompt": "..."}'),
                              ("", "bad.jsonl: the file has no prompt"), ('{"prompt": ""}', "bad.jsonl:1: the prompt is empty, and the tokenizer puts no BOS token before it")]:
            self.write("bad.jsonl", text)
            self.fails(INPUT, message, *self.generate, "--prompts", "bad.jsonl")
        self.fails(INPUT, "none.jsonl: no such file. Give a file of JSON lines", *self.generate, "--prompts", "none.jsonl")
        self.fails(USAGE, "Write --prompts none.jsonl", "generate", "none.jsonl", *self.generate[1:])


class Streams(GenerateTest):
    def test_parts_are_the_text(self):
        """A text is the same with --stream on and off. At temperature 5, tokens are nearly random, so many texts are
        not valid UTF-8."""
        for seed in range(6):
            words = ["--prompt", "Who", "--temperature", "5", "--seed", str(seed)]
            whole = self.succeeds(*self.generate, *words, "--stream", "off")
            self.assertEqual(self.succeeds(*self.generate, *words, "--stream", "on"), whole)
        row = questions(1, 2)[0]
        words = ["--question", row["question"], "--context", row["context"]]
        self.assertEqual(self.succeeds(*self.generate, *words, "--stream", "on"), self.succeeds(*self.generate, *words))

    def test_terminal(self):
        words = ["--prompt", "Who", "--temperature", "3", "--max-new-tokens", "40"]
        expected = self.succeeds(*self.generate, *words)
        for more, least_parts in [([], 10), (["--stream", "off"], 1)]:
            main_end, child_end = pty.openpty()
            self.addCleanup(os.close, main_end)
            process = subprocess.Popen([PROGRAM, *self.generate, *words, *more], cwd=self.folder, stdout=child_end,
                                       stderr=subprocess.DEVNULL, env={**os.environ, "TERM": "xterm"})
            os.close(child_end)
            text = b""
            while True:
                try:
                    part = os.read(main_end, 4096)
                except OSError:  # the other end is closed
                    break
                if not part:
                    break
                text += part
                part.decode()  # each part has only complete characters
            self.assertEqual(process.wait(RUN_LIMIT_S), 0)
            self.assertEqual(text.decode().replace("\r\n", "\n"), expected)

    def test_a_closed_reader_ends_it(self):
        read_end, write_end = os.pipe()
        os.close(read_end)
        code, _, err = self.run_tessera(*self.generate, "--prompt", "Who", "--stream", "on", *SAMPLED, stdout=write_end)
        os.close(write_end)
        self.assertEqual((code, err.splitlines()[1:]), (141, []))


class Tokens(TinyJobTest):
    def test_bytes_of_tokens(self):
        text = "Who \u4e2d \U0001f600 <0xE4>"
        result = json.loads(self.succeeds("tokenize", "--tokenizer", "tok", "--json", "--prompt", text))
        self.assertEqual(result["text"], text)
        self.assertEqual(b"".join(bytes.fromhex(one) for one in result["bytes"]).decode(), text)
        self.assertEqual(len(result["tokens"]), len(result["ids"]))
        self.assertIn("<0xE4>", result["tokens"])
        for token, one in zip(result["tokens"], result["bytes"]):
            if not token.startswith("<0x"):
                self.assertEqual(token.encode(), bytes.fromhex(one))
            self.assertNotIn("\ufffd", token)


if __name__ == "__main__":
    main()
