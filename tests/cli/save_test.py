"""Saved model folders: shards and their index, and the types of the weights."""
import json
import os
import struct

from tessera_cli import main
from tiny_job import INPUT, JOB, USAGE, TinyJobTest, read_tensors, safetensors

INDEX = "model.safetensors.index.json"
# A run of two steps. The checkpoint after step 2 contains the final model.
SAVING = [*JOB, "--max-steps", "2", "--save-strategy", "steps", "--save-steps", "2"]


def narrowed(data):
    """f32 -> bf16: omits the lower 16 bits."""
    return b"".join(data[i + 2:i + 4] for i in range(0, len(data), 4))


def widened(data):
    """f32 -> f64."""
    return struct.pack(f"<{len(data) // 4}d", *struct.unpack(f"<{len(data) // 4}f", data))


class SaveTest(TinyJobTest):
    def tensors_of(self, folder):
        """{name: (dtype, shape, bytes)} of all weight files of a folder."""
        tensors = {}
        for name in sorted(os.listdir(self.path(folder))):
            if name.endswith(".safetensors"):
                found = read_tensors(self.path(folder, name))
                self.assertFalse(tensors.keys() & found.keys())
                tensors |= found
        return tensors

    def eval_loss(self, folder):
        return json.loads(self.succeeds("eval", "--model", folder, "--eval-dataset", "eval.jsonl", "--json"))["eval_loss"]


class Shards(SaveTest):
    def test_hold_the_model(self):
        self.train("whole", job=SAVING)
        self.assertEqual([name for name in os.listdir(self.path("whole", "model")) if name.startswith("model")],
                         ["model.safetensors"])
        self.train("out", "--max-shard-size", "8kB", job=SAVING)
        tensors = self.tensors_of("out/model")
        self.assertEqual(tensors, self.tensors_of("whole/model"))
        files = sorted(name for name in os.listdir(self.path("out", "model")) if name.endswith(".safetensors"))
        self.assertGreater(len(files), 3)
        self.assertEqual(files, [f"model-{i + 1:05}-of-{len(files):05}.safetensors" for i in range(len(files))])
        index = self.json_of("out", "model", INDEX)
        self.assertEqual(index["metadata"], {"total_size": sum(len(data) for _, _, data in tensors.values())})
        self.assertEqual(index["weight_map"].keys(), tensors.keys())
        for file in files:
            here = read_tensors(self.path("out", "model", file))
            self.assertEqual(here.keys(), {name for name, place in index["weight_map"].items() if place == file})
            size = sum(len(data) for _, _, data in here.values())
            self.assertTrue(size <= 8000 or len(here) == 1, (file, size))
        # The embedding [400, 16] is larger than the limit, so it has its own file.
        self.assertEqual(list(read_tensors(self.path("out", "model", files[0]))), ["transformer.word_embeddings.weight"])
        self.assertEqual(self.eval_loss("out/model"), self.eval_loss("whole/model"))
        self.succeeds("export", "--model", "out/model", "--checkpoint", "out", "--output-dir", "exported",
                      "--max-shard-size", "8000B")
        for name in os.listdir(self.path("out", "model")):
            self.assertEqual(self.read("exported", name), self.read("out", "model", name), name)

    def test_replace_other_files(self):
        """An export removes the weight files of an earlier export in the same folder, even if it makes fewer shards."""
        self.train("out", job=SAVING)
        export = ["export", "--model", "out/model", "--checkpoint", "out", "--output-dir", "exported"]
        for limit, has_index in [("8kB", True), ("20kB", True), ("5GB", False), ("16KiB", True)]:
            self.succeeds(*export, "--max-shard-size", limit)
            names = os.listdir(self.path("exported"))
            self.assertEqual(INDEX in names, has_index)
            self.assertEqual("model.safetensors" in names, not has_index)
            if has_index:
                files = set(self.json_of("exported", INDEX)["weight_map"].values())
                self.assertEqual(files, {name for name in names if name.endswith(".safetensors")})
            self.assertEqual(self.tensors_of("exported"), self.tensors_of("out/model"))

    def test_limits_that_are_none(self):
        for limit, message in [("0", "at least 1, got"), ("-5", "must be"), ("5XB", "must be a number of bytes, got \"5XB\""),
                               ("5G", "Write GiB (powers of 1024) or GB (powers of 1000)"), ("1.5B", "not a whole number of bytes"), ("5", "has no unit. Write 5GB, or 5B for bytes"),
                               ("", "must be a number of bytes"), ("9EB", "must be a number of bytes")]:
            self.fails(USAGE, message, "train", *SAVING, "--output-dir", "out", "--max-shard-size=" + limit)
        self.assertFalse(os.path.exists(self.path("out")))

    def test_wrong_indexes(self):
        self.train("out", "--max-shard-size", "8kB", job=SAVING)
        index = self.json_of("out", "model", INDEX)
        name, file = "transformer.ln_f.weight", "model-00009-of-00008.safetensors"
        evaluate = ["eval", "--model", "out/model", "--eval-dataset", "eval.jsonl"]

        def refused(weight_map, message):
            self.write("out/model/" + INDEX, json.dumps(index | {"weight_map": weight_map}))
            self.fails(INPUT, message, *evaluate)

        names = index["weight_map"]
        refused(names | {name: file}, f'weight_map["{name}"]: names {file}, which does not exist')
        refused(names | {name: names["transformer.word_embeddings.weight"]}, "which has no such tensor")
        refused({key: value for key, value in names.items() if key != name}, "1 tensor is missing (ln_f.weight)")
        self.write("out/model/" + INDEX, json.dumps(index))
        self.succeeds(*evaluate)
        path = self.path("out", "model", names["transformer.word_embeddings.weight"])
        with open(path, "rb+") as stale:
            tensors = read_tensors(path) | {name: read_tensors(self.path("out", "model", names[name]))[name]}
            stale.write(safetensors(tensors))
        self.fails(INPUT, f'has tensor "{name}", but {INDEX} says that this tensor is in {names[name]}', *evaluate)


class Types(SaveTest):
    def setUp(self):
        super().setUp()
        self.train("first", job=SAVING)
        self.loaded = read_tensors(self.path("first", "model", "model.safetensors"))

    def saved_types(self, *words):
        """Trains first/model for one step. Expects an export of the checkpoint to equal the saved model. Returns
        {tensor: type} of the saved model, and the type in its config.json."""
        self.train("out", "--resume", "none", "--overwrite", *words,
                   job=["--model", "first/model", "--dataset", "train.jsonl", "--max-steps", "1", "--threads", "1",
                        "--save-strategy", "steps", "--save-steps", "1"])
        config = self.json_of("out", "model", "config.json")
        self.succeeds("export", "--model", "first/model", "--checkpoint", "out", "--output-dir", "exported", *words)
        self.assertEqual(self.read("exported", "model.safetensors"), self.read("out", "model", "model.safetensors"))
        return ({name: dtype for name, (dtype, _, _) in self.tensors_of("out/model").items()},
                config.get("dtype") or config["torch_dtype"])

    def replace(self, change):
        """Changes the type of each tensor of first/model: change(name, data) returns the new type and the new bytes."""
        tensors = {}
        for name, (_, shape, data) in self.loaded.items():
            dtype, changed = change(name, data)
            tensors[name] = (dtype, shape, changed)
        with open(self.path("first", "model", "model.safetensors"), "wb") as file:
            file.write(safetensors(tensors))

    def test_stay_as_loaded(self):
        self.assertEqual(self.saved_types(), (dict.fromkeys(self.loaded, "F32"), "float32"))
        self.replace(lambda _, data: ("BF16", narrowed(data)))
        self.assertEqual(self.saved_types(), (dict.fromkeys(self.loaded, "BF16"), "bfloat16"))
        self.assertEqual(self.saved_types("--save-dtype", "fp32"), (dict.fromkeys(self.loaded, "F32"), "float32"))
        self.assertEqual(self.saved_types("--save-dtype", "fp16"), (dict.fromkeys(self.loaded, "F16"), "float16"))
        # The type of the computation does not change the saved type.
        self.assertEqual(self.saved_types("--precision", "fp16"), (dict.fromkeys(self.loaded, "BF16"), "bfloat16"))

    def test_of_mixed_files_are_those_of_each_tensor(self):
        self.replace(lambda name, data: ("F32", data) if "layernorm" in name else ("BF16", narrowed(data)))
        types, of_config = self.saved_types()
        self.assertEqual(types, {name: "F32" if "layernorm" in name else "BF16" for name in self.loaded})
        self.assertEqual(of_config, "bfloat16")

    def test_of_other_types_are_fp32(self):
        self.replace(lambda _, data: ("F64", widened(data)))
        self.assertEqual(self.saved_types(), (dict.fromkeys(self.loaded, "F32"), "float32"))

    def test_of_random_weights_are_fp32(self):
        self.replace(lambda _, data: ("BF16", narrowed(data)))
        self.train("random", "--init", "random", "--precision", "bf16", job=["--model", "first/model", *SAVING[4:]])
        self.assertEqual({dtype for dtype, _, _ in self.tensors_of("random/model").values()}, {"F32"})

    def test_of_a_run_without_its_initial_weights(self):
        """A resumed run needs the configuration and the tokenizer of its initial model, but not the weights."""
        self.replace(lambda _, data: ("BF16", narrowed(data)))
        self.saved_types()
        longer = ["--model", "first/model", "--dataset", "train.jsonl", "--max-steps", "2", "--threads", "1",
                  "--save-strategy", "steps", "--save-steps", "1"]
        self.train("whole", job=longer)
        os.remove(self.path("first", "model", "model.safetensors"))
        self.train("out", job=longer)
        self.succeeds("export", "--model", "first/model", "--checkpoint", "out", "--output-dir", "exported")
        self.train("elsewhere", "--resume", "out/checkpoint-1", job=longer)
        for folder in ["out/model", "exported", "elsewhere/model"]:
            self.assertEqual(self.read(folder, "model.safetensors"), self.read("whole", "model", "model.safetensors"))
            self.assertEqual(self.read(folder, "config.json"), self.read("whole", "model", "config.json"))
        self.assertEqual({dtype for dtype, _, _ in self.tensors_of("out/model").values()}, {"BF16"})


if __name__ == "__main__":
    main()
