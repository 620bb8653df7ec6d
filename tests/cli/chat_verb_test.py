"""tessera chat: lines and JSON lines as input, a terminal, Ctrl-C, commands, stop strings and errors."""
import json
import os
import pty
import signal
import subprocess

from chat_test import TEMPLATE, chat
from llama_test import LLAMA
from tessera_cli import PROGRAM, RUN_LIMIT_S, main
from tiny_job import INPUT, USAGE, TinyJobTest, jsonl

ENDLESS = ["--max-new-tokens", "100000", "--temperature", "0"]


class ChatVerbTest(TinyJobTest):
    """The tokens are nearly random, because a model without training repeats the last token of the prompt."""

    def setUp(self):
        super().setUp()
        self.write("chat.jsonl", jsonl([chat(i) for i in range(12)]))
        self.succeeds("tokenizer", "train", "--dataset", "chat.jsonl", "--vocab-size", "300", "--output-dir", "tok")
        self.write("tok/chat_template.jinja", TEMPLATE)
        self.model = ["--model", "gpt", "--init", "random", "--tokenizer", "tok", "--vocab-size", "300", "--hidden-size",
                      "32", "--num-layers", "1", "--num-heads", "2", "--ff-dim", "32", "--threads", "1"]
        self.chat = ["chat", *self.model, "--temperature", "50", "--max-new-tokens", "30"]

    def run_chat(self, text, *words):
        self.write("input", text)
        with open(self.path("input"), "rb") as file:
            return self.run_tessera(*self.chat, *words, stdin=file)

    def answers(self, text, *words):
        """The final objects of a chat with --json. Checks that the pieces of each answer are its content."""
        code, out, err = self.run_chat(text, "--json", *words)
        self.assertEqual(code, 0, err)
        answers, pieces = [], ""
        for line in map(json.loads, out.splitlines()):
            if "piece" in line:
                self.assertNotEqual(line["piece"], "")
                pieces += line["piece"]
                continue
            self.assertEqual(line["content"], pieces)
            pieces = ""
            answers.append(line)
        return answers

    def generated(self, messages, *words):
        self.write("p.jsonl", jsonl([{"messages": messages}]))
        words = [*self.model, "--temperature", "50", "--max-new-tokens", "30", *words]
        return json.loads(self.succeeds("generate", *words, "--prompts", "p.jsonl"))

    def start(self, *words, **options):
        """The parent of the tests may ignore SIGINT."""
        options.setdefault("preexec_fn", lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        process = subprocess.Popen([PROGRAM, *self.chat, *words], cwd=self.folder, **options)
        self.addCleanup(process.wait, RUN_LIMIT_S)
        self.addCleanup(process.kill)
        return process


class Lines(ChatVerbTest):
    def test_json_has_the_history_in_the_models_template(self):
        first, second = self.answers('{"content": "Who?"}\n\n{"content": "Why?"}\n', "--system", "Be brief.", "--seed", "5")
        asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}]
        expected = self.generated(asked, "--seed", "5")
        self.assertEqual(first["content"], expected["text"])
        for key in ["finish_reason", "num_prompt_tokens"]:
            self.assertEqual(first[key], expected[key])
        self.assertEqual(first["num_answer_tokens"], len(expected["ids"]))
        asked += [{"role": "assistant", "content": first["content"]}, {"role": "user", "content": "Why?"}]
        self.assertEqual(second["num_prompt_tokens"], self.generated(asked)["num_prompt_tokens"])
        self.assertEqual(self.answers(json.dumps({"messages": asked}))[0]["num_prompt_tokens"], second["num_prompt_tokens"])

    def test_plain_lines_and_commands(self):
        answers = self.answers('{"content": "Who?"}\n{"content": "Why?"}\n')
        code, out, err = self.run_chat("Who?\n\n Why?\r\n/exit\nnot read\n")
        self.assertEqual((code, out), (0, "".join(answer["content"] + "\n" for answer in answers)), err)
        # The random numbers depend on the number of the answer, so greedy answers show what the model read.
        greedy = ["--temperature", "0"]
        once = self.run_chat("Who?\n", *greedy)[1]
        code, out, err = self.run_chat("Who?\n/undo\nWho?\n/reset\nWho?\n/system Be brief.\nWho?\n", *greedy)
        self.assertEqual(code, 0, err)
        self.assertTrue(out.startswith(3 * once))
        code, out, err = self.run_chat("/help\n/undo\n", *greedy)
        self.assertEqual((code, out), (0, ""))
        for text in ["/reset  ", "/system TEXT", "There is no message yet."]:
            self.assertIn(text, err)

    def test_refused_lines_do_not_end_the_chat(self):
        good = '{"content": "Who?"}\n'
        code, out, err = self.run_chat(good + '{"contnt": "a"}\n{\n', "--json")
        self.assertEqual(code, INPUT, err)
        errors = [json.loads(line)["error"] for line in out.splitlines() if "error" in json.loads(line)]
        self.assertEqual(len(errors), 2)
        self.assertIn('standard input:2: has neither "content" nor "messages". Write each line as {"content": "..."}', errors[0])
        self.assertIn("standard input:3:2: not valid JSON", errors[1])
        code, out, err = self.run_chat(b"/rest\nWho?\n\xff\n")
        self.assertEqual((code, out), (USAGE, self.run_chat("Who?\n")[1]))
        self.assertIn('error: standard input:1: unknown command "/rest". /help shows the commands. Write a space before', err)
        self.assertIn("error: standard input:3:1: ", err)
        # A refused message is not part of the history.
        self.write("tok/chat_template.jinja", "{% if messages | length > 1 %}{{ raise_exception('one only') }}{% endif %}" + TEMPLATE)
        code, out, err = self.run_chat("Who?\nWhy?\n/reset\nWho?\n", "--temperature", "0")
        self.assertEqual((code, err.count("one only"), len(out.splitlines()) % 2), (INPUT, 1, 0), err)

    def test_longer_than_the_context(self):
        config = dict(LLAMA, model_type="llama", vocab_size=300, max_position_embeddings=64)
        self.write("config.json", json.dumps(config))
        self.model[1] = self.chat[2] = "config.json"
        for option in self.model[6:-2:2]:  # sizes come from config.json
            at = self.chat.index(option)
            del self.chat[at:at + 2]
        code, out, err = self.run_chat("Who?\n" + 40 * "What is it? " + "\n/reset\nWho?\n", "--max-new-tokens", "1000",
                                       "--temperature", "0")
        self.assertEqual(code, INPUT)
        self.assertRegex(err, r"error: the conversation: it has \d+ tokens with the last message, but the model's context has only "
                              r"64 tokens, and the answer needs some of them. Forget the conversation with /reset, or its last")
        once = self.run_chat("Who?\n", "--max-new-tokens", "1000", "--temperature", "0")[1]
        self.assertEqual(out, 2 * once)
        answer = self.answers('{"content": "Who?"}', "--max-new-tokens", "1000", "--temperature", "0")[0]
        self.assertLessEqual(answer["num_prompt_tokens"] + answer["num_answer_tokens"], 64)

    def test_stop_strings(self):
        [plain] = self.answers('{"content": "Who?"}', "--seed", "5")
        text = plain["content"]
        self.assertGreater(len(text), 12)
        for begin, size in [(3, 5), (6, 1), (0, 3)]:
            stop = text[begin:begin + size]
            [cut] = self.answers('{"content": "Who?"}', "--seed", "5", "--stop", "never there", f"--stop={stop}")
            self.assertEqual(cut["content"], text[:text.index(stop)])
            self.assertEqual(cut["finish_reason"], "stop")
            self.assertLess(cut["num_answer_tokens"], plain["num_answer_tokens"])
            code, out, _ = self.run_chat("Who?\n", "--seed", "5", f"--stop={stop}")
            self.assertEqual((code, out), (0, text[:text.index(stop)] + "\n"))

    def test_refused_settings(self):
        self.fails(USAGE, "--model: is required by chat. Example: tessera chat --model ", "chat")
        self.fails(USAGE, "--nproc: is not a setting of chat. It belongs to train", *self.chat, "--nproc", "2")
        self.fails(USAGE, "--stop: contains an empty text", *self.chat, "--stop", "a", "--stop=")
        self.assertIn('"max_new_tokens": {\n    "value": 1024,\n    "origin": "default (chat)"',
                      self.succeeds("config", "chat", "--json"))
        self.assertIn("max_new_tokens = 50", self.succeeds("config", "generate"))
        os.remove(self.path("tok", "chat_template.jinja"))
        self.fails(INPUT, "tok: has no chat template, so nothing says how conversations become text. Give --chat-template FILE",
                   *self.chat)


class Interrupts(ChatVerbTest):
    def test_ctrl_c_ends_the_answer(self):
        process = self.start("--json", *ENDLESS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for _ in range(2):
            process.stdin.write(b'{"content": "Who?"}\n')
            process.stdin.flush()
            content = json.loads(process.stdout.readline())["piece"]
            process.send_signal(signal.SIGINT)
            while "piece" in (line := json.loads(process.stdout.readline())):
                content += line["piece"]
            self.assertEqual((line["finish_reason"], line["content"]), ("interrupted", content))
        process.send_signal(signal.SIGINT)  # it waits for a line
        self.assertEqual(process.wait(RUN_LIMIT_S), -signal.SIGINT)
        process.stdin.close()
        process.stdout.close()

    def test_terminal(self):
        main_end, child_end = pty.openpty()
        self.addCleanup(os.close, main_end)
        process = self.start("--seed", "3", stdin=child_end, stdout=child_end, stderr=subprocess.DEVNULL,
                             env={**os.environ, "TERM": "xterm"})
        os.close(child_end)
        text = b""

        def read_until(end):
            nonlocal text
            while not text.endswith(end):
                part = os.read(main_end, 4096)
                part.decode()  # only complete characters
                text += part

        read_until(b"> ")
        os.write(main_end, b"Who?\n")
        read_until(b"\r\n> ")
        os.write(main_end, b"/reset\n")
        read_until(b"/reset\r\n> ")
        os.write(main_end, b"\x04")
        self.assertEqual(process.wait(RUN_LIMIT_S), 0)
        answer = text.decode().replace("\r\n", "\n").removeprefix("> Who?\n").removesuffix("\n> /reset\n> ")
        self.assertEqual(answer + "\n", self.run_chat("Who?\n", "--seed", "3")[1])


if __name__ == "__main__":
    main()
