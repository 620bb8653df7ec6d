"""Models of Llama's family: training, evaluation, generation, saving, and refused configurations."""
import json

from tessera_cli import main
from tiny_job import EVALUATED, INPUT, JOB, ON_GPU, USAGE, TinyJobTest, read_tensors

LLAMA = {"vocab_size": 400, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "head_dim": 8, "intermediate_size": 24, "max_position_embeddings": 512, "initializer_range": 0.1,
         "bos_token_id": 1, "eos_token_id": 2}
VARIANTS = {
    "llama": {"model_type": "llama", "tie_word_embeddings": True, "rope_theta": 500000.0,
              "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                               "original_max_position_embeddings": 128}},
    "mistral": {"model_type": "mistral", "sliding_window": 9},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True},
    "qwen3": {"model_type": "qwen3", "attention_bias": True, "eos_token_id": [2, 3]},
}


class Llama(TinyJobTest):
    def use(self, *changes):
        config = dict(LLAMA)
        for change in changes:
            config |= change
        self.write("config.json", json.dumps(config))

    def test_trains_saves_and_reads_again(self):
        for name, variant in VARIANTS.items():
            with self.subTest(name=name):
                self.use(variant)
                self.train(name, "--epochs", "3", "--max-grad-norm", "1")
                losses = [record["loss"] for record in self.metrics(name, "train")]
                self.assertLess(losses[-1], 0.9 * losses[0])
                saved = self.json_of(name, "model", "config.json")
                self.assertEqual(saved["model_type"], name)
                self.assertEqual(saved["architectures"], [{"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM",
                                                           "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}[name]])
                tensors = read_tensors(self.path(name, "model", "model.safetensors"))
                self.assertEqual(tensors["model.layers.1.self_attn.k_proj.weight"][1], [16, 16])
                self.assertEqual("lm_head.weight" in tensors, not variant.get("tie_word_embeddings", False))
                last = self.metrics(name, "eval")[-1]
                words = ["eval", "--model", f"{name}/model", "--eval-dataset", "eval.jsonl", "--json"]
                again = json.loads(self.succeeds(*words, *(["--device", "cuda", "--precision", "fp32"] if ON_GPU else [])))
                self.assertAlmostEqual(again["eval_loss"], last["eval_loss"], places=5)
                self.succeeds("generate", "--model", f"{name}/model", "--prompt", "Who", "--max-new-tokens", "3")

    def test_the_context_of_the_model(self):
        self.use(VARIANTS["qwen2"], {"max_position_embeddings": 20})
        self.fails(USAGE, "--max-length: train.jsonl has a sample of ", "train", *JOB, "--output-dir", "out")
        self.use(VARIANTS["qwen2"], {"max_position_embeddings": 200})
        self.train("out")
        self.fails(USAGE, "--max-new-tokens: a prompt of ", "generate", "--model", "out/model", "--prompt", "Who",
                   "--max-new-tokens", "200")

    def test_refused_configurations(self):
        for change, message in [
            ({"model_type": "mixtral"}, 'config.json: "model_type" is "mixtral". Tessera supports "bloom", "gpt", "llama"'),
            ({"num_experts": 8}, 'config.json: "num_experts" is 8. Tessera supports only dense models'),
            ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, '"rope_type" is "dynamic". Tessera supports "default"'),
            ({"hidden_act": "relu"}, '"hidden_act" is "relu". Tessera supports "silu" (or "swish") and "gelu_pytorch_tanh" (or'),
            ({"num_key_value_heads": 3}, "num_attention_heads 4 is not a multiple of num_key_value_heads 3"),
        ]:
            with self.subTest(change=change):
                self.use(VARIANTS["llama"], change)
                self.fails(INPUT, message, "train", *JOB, "--output-dir", "out")

    def test_names_of_shapes(self):
        plan = json.loads(self.succeeds("plan", "--model", "llama-3.2-1b", "--init", "random", "--json", "--batch-size", "1"))
        self.assertEqual(plan["num_parameters"], 1235814400)


if __name__ == "__main__":
    main()
