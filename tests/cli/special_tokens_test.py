"""Which token ends a text: the sources and their order, the same in all commands; notes; what a saved model names."""
import json
import shutil

from tessera_cli import main
from tiny_job import BLOOM, INPUT, JOB, USAGE, BadInputTest, without_timing

TOKENS = ["<unk>", "<s>", "</s>", "<pad>"]
TRAIN = [*JOB, "--model", "m", "--tokenizer", "m", "--max-steps", "1", "--train-size", "4"]
# Folders: {source: the value of "eos_token_id" or "eos_token"}, then the used id, the saved ids of config.json and of
# generation_config.json, and the number of warnings. "template" is the token after a text in tokenizer.json.
FOLDERS = [
    ({}, 2, 2, None, 1),  # a guess
    ({"config": 3}, 3, 3, None, 0),
    ({"config": [1, 3]}, 1, [1, 3], None, 0),
    ({"generation": 3}, 3, 3, 3, 0),
    ({"generation": [3, 1]}, 3, 3, [3, 1], 0),
    ({"named": "<pad>"}, 3, 3, None, 0),
    ({"named": {"content": "<pad>"}, "generation": {}}, 3, 3, 3, 1),  # no id, and a warning for the value
    ({"map": "<pad>"}, 3, 3, None, 0),
    ({"map": {"content": "<pad>"}, "named": None}, 3, 3, None, 0),
    ({"template": "<pad>"}, 3, 3, None, 0),
    ({"config": [1, 3], "named": "<pad>"}, 3, [1, 3], None, 0),
    ({"config": 2, "generation": [2, 3]}, 2, 2, [2, 3], 0),
    ({"config": [2, 400, -1]}, 2, [2, 400, -1], None, 2),
    ({"config": -1, "generation": 3}, 3, 3, 3, 1),
    ({"config": 400, "named": "<pad>"}, 3, [3, 400], None, 1),
    ({"config": 1, "named": "<pad>", "generation": [1, 2]}, 3, [3, 1], [3, 1, 2], 1),  # the files disagree
    ({"config": 2, "generation": 3, "map": "<s>", "template": "<pad>"}, 1, [1, 2], [1, 3], 1),
    ({"config": 2, "template": "<pad>"}, 2, 2, None, 0),  # the template ends no sample if an id is named
    ({"config": 2, "flag": "<pad>", "named": "</s>", "generation": 2}, 3, [3, 2], [3, 2], 0),
    ({"map": "<end>", "named": "<pad>"}, 3, 3, None, 1),
    ({"map": 5, "named": "<pad>"}, 3, 3, None, 1),
    ({"config": [], "generation": 3}, 3, 3, 3, 0),
    ({"config": [], "generation": [], "named": "", "map": {}}, 2, 2, 2, 1),  # a guess
    ({"config": 2, "generation": [2, 70]}, 2, 2, [2, 70], 1),  # an ordinary token ends generated texts
]


class EndOfText(BadInputTest):
    def folder_with(self, config=None, generation=None, named=None, map=None, template=None, flag=None):
        shutil.rmtree(self.path("m"), ignore_errors=True)
        shutil.copytree(self.path("tok"), self.path("m"))
        values = {key: value for key, value in BLOOM.items() if key not in ("eos_token_id", "pad_token_id")}
        self.write_json("m/config.json", {**values, **({} if config is None else {"eos_token_id": config})})
        if generation is not None:
            self.write_json("m/generation_config.json", {"eos_token_id": generation})
        if named is not None:
            self.write_json("m/tokenizer_config.json", {"eos_token": named, "padding_side": "left"})
        if map is not None:
            self.write_json("m/special_tokens_map.json", {"eos_token": map})
        if template is not None:
            single = [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": template, "type_id": 0}}]
            special = {template: {"id": template, "ids": [TOKENS.index(template)], "tokens": [template]}}
            self.write_json("m/tokenizer.json", {**self.json_of("m", "tokenizer.json"), "post_processor": {
                "type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": special}})
        return ["--eos-token", flag] if flag else []

    def warnings_of(self, *words):
        code, _, err = self.run_tessera(*words)
        self.assertEqual(code, 0, err)
        return [line for line in err.splitlines() if line.startswith("warning: ")]

    def test_sources_and_saved_files(self):
        expected = {}
        for token in 1, 2, 3:
            self.folder_with(config=token)
            self.succeeds("train", *TRAIN, "--output-dir", f"with{token}")
            expected[token] = without_timing(self.path(f"with{token}", "metrics.jsonl"))
        self.assertEqual(len({lines[0] for lines in expected.values()}), 3)
        for i, (sources, used, in_config, in_generation, num_warnings) in enumerate(FOLDERS):
            with self.subTest(**sources):
                words = self.folder_with(**sources)
                warnings = self.warnings_of("train", *TRAIN, *words, "--output-dir", f"out{i}")
                self.assertEqual(len(warnings), num_warnings, warnings)
                self.assertEqual(without_timing(self.path(f"out{i}", "metrics.jsonl")), expected[used])
                saved = f"out{i}/model"
                config = self.json_of(saved, "config.json")
                self.assertEqual(config["eos_token_id"], in_config)
                self.assertNotIn("pad_token_id", config)
                if in_generation is not None:
                    self.assertEqual(self.json_of(saved, "generation_config.json")["eos_token_id"], in_generation)
                if "flag" in sources:
                    self.assertEqual(self.json_of(saved, "tokenizer_config.json")["eos_token"], TOKENS[used])

    def test_the_commands_agree(self):
        sources, used, *_ = FOLDERS[15]
        self.folder_with(**sources)
        notes = self.warnings_of("train", *TRAIN, "--output-dir", "out")
        self.assertEqual(notes, [
            'warning: the files name different end tokens: m/tokenizer_config.json names 3 "<pad>", m/config.json names 1 "<s>", '
            'm/generation_config.json names 1 "<s>". A sample ends with the first one, and a generated text ends at any of them. '
            "To use another token, give --eos-token"])
        model = ["--model", "m", "--tokenizer", "m"]
        evaluation = ["eval", *model, "--init", "random", "--eval-dataset", "eval.jsonl"]
        self.assertEqual(self.warnings_of("plan", *TRAIN), notes)
        self.assertEqual(self.warnings_of(*evaluation), notes)
        self.assertEqual(self.warnings_of("generate", *model, "--init", "random", "--prompt", "a"), notes)
        self.assertEqual(self.warnings_of("export", *model, "--checkpoint", "out/checkpoint-1", "--output-dir", "new"), notes)
        for name in "config.json", "generation_config.json", "tokenizer_config.json":
            self.assertEqual(self.read("new", name), self.read("out", "model", name))
        loss = lambda *words: json.loads(self.succeeds(*words, "--json"))["eval_loss"]
        self.assertNotEqual(loss(*evaluation), loss(*evaluation, "--eos-token", "</s>"))

    def test_the_flag(self):
        self.folder_with(config=2)
        self.succeeds("train", *TRAIN, "--eos-token", "<s>", "--output-dir", "out")
        # A checkpoint and a saved model keep the token.
        self.succeeds("export", "--model", "m", "--checkpoint", "out/checkpoint-1", "--output-dir", "new")
        for folder in "new", "out/model":
            self.assertEqual(self.json_of(folder, "config.json")["eos_token_id"], [1, 2])
            self.assertEqual(self.json_of(folder, "tokenizer_config.json")["eos_token"], "<s>")
        self.fails(USAGE, 'made with eos_token = "<s>", and this run has ""', "train", *TRAIN, "--max-steps", "2",
                   "--output-dir", "out")
        self.succeeds("train", *TRAIN, "--eos-token", "3", "--output-dir", "by_id")
        self.assertEqual(self.json_of("by_id", "model", "config.json")["eos_token_id"], [3, 2])
        remedy = ". Give the token that ends a text: the special tokens are 0 <unk>, 1 <s>, 2 </s>, 3 <pad>"
        for token, what in [("<end>", "a token"), ("-1", "a token"), ("2.0", "a token"), ("+2", "a token"), (" 2", "a token"),
                            ("400", "the id of a token"), ("9" * 30, "the id of a token")]:
            self.fails(USAGE, f'--eos-token: "{token}" is not {what} of m/tokenizer.json' + remedy, "plan", *TRAIN,
                       f"--eos-token={token}")

    def test_numbers_and_ordinary_tokens(self):
        """A number is an id, even if an ordinary token has this text. The tokenizers of people have such tokens."""
        self.folder_with(config=1)
        vocabulary = self.json_of("m", "tokenizer.json")["model"]["vocab"]
        self.assertIn("2", vocabulary)
        for words in (["plan", *TRAIN], ["generate", "--model", "m", "--init", "random", "--prompt", "a"]):
            self.assertEqual(self.warnings_of(*words, "--eos-token", "2"), [])
        self.succeeds("train", *TRAIN, "--output-dir", "out", env={"TESSERA_EOS_TOKEN": "2"})
        self.assertEqual(self.json_of("out", "model", "config.json")["eos_token_id"], [2, 1])
        digit = vocabulary["2"]
        for token, shown in [(str(digit), f'{digit} "2"'), ("a", f'{vocabulary["a"]} "a"'), ("\u0120a", '" a"')]:
            self.fails(USAGE, f"{shown} is an ordinary token of m/tokenizer.json, which texts contain. Give the token that ends a "
                       "text: the special tokens are 0 <unk>", "plan", *TRAIN, "--eos-token", token)
        # Files of the tokenizer may name such a token. An added token may be one that is not special.
        self.folder_with(named="2")
        note = f'warning: m/tokenizer_config.json: the end token {digit} "2" is an ordinary token, which texts contain'
        self.assertEqual(self.warnings_of("plan", *TRAIN), [note])
        self.assertEqual(self.warnings_of("plan", *TRAIN, "--eos-token", str(digit)), [note.replace(
            "m/tokenizer_config.json", "--eos-token")])
        self.folder_with(config=3)
        tokenizer = self.json_of("m", "tokenizer.json")
        next(token for token in tokenizer["added_tokens"] if token["id"] == 3)["special"] = False
        self.write_json("m/tokenizer.json", tokenizer)
        self.assertEqual(self.warnings_of("plan", *TRAIN), [])
        self.assertEqual(self.warnings_of("plan", *TRAIN, "--eos-token", "<pad>"), [])

    def test_a_guess_is_announced_and_wrong_used_values_are_errors(self):
        self.folder_with()
        guess = ('warning: no file of the model or the tokenizer names the token that ends a text. Tessera takes 2 "</s>". To '
                 'use another token, give --eos-token, or name it as "eos_token" in m/tokenizer_config.json')
        self.assertEqual(self.warnings_of("train", *TRAIN, "--output-dir", "out"), [guess])
        self.assertEqual(self.warnings_of("generate", "--model", "out/model", "--prompt", "a"), [])
        remedy = ". Give the token that ends a text, there or with --eos-token: the special tokens are 0 <unk>"
        for sources, message in [
            ({"config": -1}, 'm/config.json: "eos_token_id" is -1, not a whole number from 0 to 399' + remedy),
            ({"config": [400]}, 'm/config.json: "eos_token_id" is an array, not a whole number from 0 to 399' + remedy),
            ({"generation": 70}, "m/generation_config.json: \"eos_token_id\" is 70, the ordinary token "),
            ({"map": "<end>"}, 'm/special_tokens_map.json: "eos_token" is "<end>", but the tokenizer has no such token'),
            ({"named": 2}, 'm/tokenizer_config.json: "eos_token" is not the text of a token. Use this file and tokenizer.json'),
        ]:
            with self.subTest(**sources):
                self.folder_with(**sources)
                self.fails(INPUT, message, "train", *TRAIN, "--output-dir", "out")
                self.succeeds("plan", *TRAIN, "--eos-token", "</s>")

    def test_values_that_training_does_not_use(self):
        self.folder_with(config=2)
        config = {**self.json_of("m", "config.json"), "pad_token_id": -1, "bos_token_id": 400, "unk_token_id": "?"}
        self.write_json("m/config.json", config)
        self.write_json("m/generation_config.json", {"eos_token_id": [2, 400], "top_k": -1, "pad_token_id": 400})
        generation = self.read("m", "generation_config.json")
        warnings = self.warnings_of("train", *TRAIN, "--output-dir", "out")
        self.assertEqual(len(warnings), 6, warnings)
        self.assertIn('warning: m/config.json: "pad_token_id" is -1, not a whole number from 0 to 399. Tessera ignores this '
                      "value", warnings)
        self.assertEqual(self.read("out", "model", "generation_config.json"), generation)
        saved = self.json_of("out", "model", "config.json")
        for key, value in config.items():
            self.assertEqual(saved[key], value)

    def test_a_model_without_a_config(self):
        """Its ids come from the tokenizer's files, or from its template for BOS."""
        self.folder_with(named="</s>", map="<unk>", template="<s>")
        names = {"eos_token": "<s>", "pad_token": "<pad>", "bos_token": None, "unk_token": "none of the tokens"}
        self.write_json("m/tokenizer_config.json", names)
        words = ["--init", "random", "--dataset", "train.jsonl", "--max-steps", "1", "--tokenizer", "m"]
        self.succeeds("train", *words, "--model", "gpt", "--hidden-size", "8", "--num-layers", "1", "--num-heads", "1",
                      "--ff-dim", "8", "--output-dir", "out")
        saved = self.json_of("out", "model", "config.json")
        self.assertEqual({key: value for key, value in saved.items() if key.endswith("token_id")},
                         {"eos_token_id": 1, "pad_token_id": 3})


if __name__ == "__main__":
    main()
