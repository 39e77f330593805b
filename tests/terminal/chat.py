#!/usr/bin/env python3
"""sluice run: turns from pipes, files and a terminal, its commands, its exit codes.

usage: chat.py SLUICE

TAP."""
import json
import os
import re
import signal
import stat
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from terminal import NEVER_S, PROMPT, Tap, Terminal, plain  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEMO = os.path.join(ROOT, "demo", "demo.gguf")
SMALL = ["--device", "cpu", "-t", "1", "--heat-file", "off"]
TURNS = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + TURNS
THINKS = TURNS + "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}"


def with_template(path, template):
    """The demo model with a template of its own: as long as the one it has, so that nothing else moves."""
    with open(DEMO, "rb") as f:
        data = bytearray(f.read())
    at = data.index(b"tokenizer.chat_template") + len(b"tokenizer.chat_template") + 4
    size = int.from_bytes(data[at:at + 8], "little")
    text = template.encode()
    assert len(text) + 4 <= size, "the template is too long"
    data[at + 8:at + 8 + size] = text + b"{#" + b" " * (size - len(text) - 4) + b"#}"
    with open(path, "wb") as f:
        f.write(data)
    return path


class Chat(Tap):
    def __init__(self, sluice, folder):
        self._sluice, self._folder = sluice, folder
        self._env = {**os.environ, "HOME": folder, "TERM": "xterm", "LANG": "C"}
        for name in ("NO_COLOR", "XDG_STATE_HOME", "LC_ALL", "LC_CTYPE"):
            self._env.pop(name, None)
        self._no_system = with_template(os.path.join(folder, "no-system.gguf"), NO_SYSTEM)
        self._thinks = with_template(os.path.join(folder, "thinks.gguf"), THINKS)
        self._endless = os.path.join(folder, "endless.gguf")  # a context that no test fills
        subprocess.run([sluice, "synth", "-q", "-o", self._endless, "--layers", "1", "--embd", "64", "--heads", "1", "--kv-heads", "1",
                        "--vocab", "300", "--ctx", "200000"], check=True, timeout=NEVER_S)

    # ---- tools ----

    def _path(self, name):
        return os.path.join(self._folder, name)

    def _argv(self, *words, model=DEMO):
        return [self._sluice, "run", "-m", model, *SMALL, *words]

    def _run(self, *words, said=b"", model=DEMO, code=0):
        said = said.encode() if isinstance(said, str) else said
        p = subprocess.run(self._argv(*words, model=model), input=said, capture_output=True, timeout=NEVER_S, env=self._env)
        out, err = p.stdout.decode(), p.stderr.decode(errors="replace")
        assert p.returncode == code, f"exit code {p.returncode}, not {code}: {err}"
        assert "Sanitizer" not in err, err
        return out, err

    def _saved(self, name):
        with open(self._path(name), encoding="utf-8") as f:
            return json.load(f)

    def _said(self, name):
        return [m["content"] for m in self._saved(name)["messages"] if m["role"] == "user"]

    def _terminal(self, *words, model=DEMO, **env):
        t = Terminal(self._argv(*words, model=model), {**self._env, **env})
        try:
            t.until(PROMPT)
        except AssertionError:
            t.kill()
            raise
        return t

    # ---- from a pipe ----

    def lines_are_turns_and_commands_are_not(self):
        said = f"What is 2 + 3?\n/set temp 0\n/set\n/system Be brief.\n/system\n /not a command\n/usr/bin is a path\n/save {self._path('a.json')}\n/bye\nWhat is 4 + 4?\n"
        out, err = self._run("--seed", "7", said=said)
        saved = self._saved("a.json")
        assert saved["messages"][0] == {"role": "system", "content": "Be brief."}, saved
        assert self._said("a.json") == ["What is 2 + 3?", " /not a command", "/usr/bin is a path"], saved
        assert saved["temperature"] == 0 and saved["seed"] == 7, saved
        assert "temp 0\n" in err and "\nBe brief.\n" in err and "2 + 3 = 5" in out, err

    def what_is_saved_is_private_and_comes_back(self):
        path = self._path("b.json")
        self._run("--seed", "3", "--temp", "0.25", said=f"What is 2 + 3?\n/save {path}\n")
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        _, err = self._run(said=f"/load {path}\n/set\n/clear\nWhat is 1 + 1?\n/save {path}\n")
        assert "2 messages loaded" in err and "temp 0.25\n" in err and "seed 3\n" in err, err
        assert self._said("b.json") == ["What is 1 + 1?"], "an earlier one is replaced, and /clear forgot"

    def other_files_are_not_overwritten_and_bad_ones_change_nothing(self):
        for name, text in (("c.txt", "precious"), ("c.json", '{"a": 1}'), ("d.json", '{"messages": [{"role": "boss", "content": "x"}]}'),
                           ("e.json", '{"messages": [{"role": "user", "content": "x"}], "temperature": -1}')):
            with open(self._path(name), "w", encoding="utf-8") as f:
                f.write(text)
        for name in ("c.txt", "c.json", "d.json"):
            with open(self._path(name), "rb") as f:
                before = f.read()
            _, err = self._run(said=f"What is 2 + 3?\n/load {self._path(name)}\n/save {self._path(name)}\n/save {self._path('f.json')}\n", code=1)
            with open(self._path(name), "rb") as f:
                assert f.read() == before
            assert err.count("not a saved conversation") == 2 and self._said("f.json") == ["What is 2 + 3?"], err
        _, err = self._run(said=f"/load {self._path('e.json')}\n/load {self._folder}\n/load\n/set\nWhat is 2 + 3?\n/save /no/such/folder/x\n", code=1)
        for why in ("'temperature' must be", "not a regular file", "/load needs the name of a file", "/no/such/folder/x: cannot be written", "temp 0.7\n"):
            assert why in err, (why, err)

    def what_is_no_command_is_said(self):
        for line, why in (("/regenerat", "did you mean '/regenerate'?"), ("/set tmp 1", "did you mean 'temp'?"), ("/set temp -1", "temp is '-1': must be a number from 0 up"),
                          ("/set seed", "seed is '': must be a whole number"), ("/think maybe", "must be on, off"), ("/think on", "does not write down its thinking"),
                          ("/clear all", "/clear takes nothing after it"), ("/save x", "nothing has been said yet"), ("/regenerate", "there is no answer to regenerate")):
            _, err = self._run(said=line + "\n/set\n", code=1)
            assert why in err and "temp 0.7\n" in err, (line, err)
        _, err = self._run(said="/help\n/?\n")
        assert err.count("/regenerate") == 2 and all(len(line) <= 80 for line in err.splitlines()), err

    def a_text_of_several_lines(self):
        path = self._path("g.json")
        said = f'"""What is\n\n2 + 3?"""\n"""\n/clear\n"""\n/system """Be\nbrief."""\n/save {path}\n'
        self._run(said=said)
        assert self._said("g.json") == ["What is\n\n2 + 3?", "/clear"], self._saved("g.json")
        assert self._saved("g.json")["messages"][0]["content"] == "Be\nbrief."
        _, err = self._run(said='"""What is\n2 + 3?\n', code=1)
        assert 'has no """ at its end' in err, err

    def a_turn_that_fails_ends_it_with_1_and_the_others_are_answered(self):
        out, err = self._run("-c", "64", said=b"hello " * 200 + b"\nWhat is 2 + 3?\n", code=1)
        assert "2 + 3 = 5" in out and "with a context of 64 tokens" in err, err
        for bad, why in ((b"a\0b\n", "NUL"), (b"a\xff\n", "not UTF-8")):
            out, err = self._run(said=bad + b"What is 2 + 3?\n", code=1)
            assert "2 + 3 = 5" in out and why in err, err
        out, _ = self._run(said=b"What is 2 + 3?")  # the last line has no end
        assert "2 + 3 = 5" in out

    def prompts_from_files(self):
        with open(self._path("q"), "w", encoding="utf-8") as f:
            f.write("What is 2 + 3?\n")
        asked = r"\[(\d+) prompt tokens"
        one, err = self._run("-p", "What is 2 + 3?", "--seed", "1")
        for words, said in ((["-f", self._path("q")], ""), (["-f", "-"], "What is 2 + 3?\n"), (["-p", "What is", "--file", "-"], "2 + 3?")):
            out, more = self._run(*words, "--seed", "1", said=said)
            assert out == one or words[0] == "-p", out
            assert words[0] == "-p" or re.search(asked, more)[1] == re.search(asked, err)[1], more
        _, err = self._run("-f", "/no/such", code=1)
        assert "--file /no/such: No such file" in err, err
        _, err = self._run("-f", "-", said=b"\xff", code=1)
        assert "not UTF-8" in err, err

    def ctrl_c_where_nobody_types_ends_it_with_130(self):
        for words, said in ((["-p", "x"], b""), ([], b"x\nx\n")):
            with subprocess.Popen(self._argv("-c", "200000", *words, model=self._endless), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  env=self._env) as p:
                p.stdin.write(said)
                p.stdin.flush()
                assert p.stdout.read(1), "no answer began"
                p.send_signal(signal.SIGINT)
                _, err = p.communicate(timeout=NEVER_S)
                assert p.returncode == 130 and err.count(b"[interrupted]") == 1, (p.returncode, err)

    # ---- what the model is told ----

    def a_template_that_refuses_system_messages(self):
        out, err = self._run("-s", "Be brief.", "-p", "What is 2 + 3?", "--temp", "0", model=self._no_system)
        same, told = self._run("-p", "Be brief.\n\nWhat is 2 + 3?", "--temp", "0", model=self._no_system)
        count = r"\[(\d+) prompt tokens"
        assert out == same and re.search(count, err)[1] == re.search(count, told)[1], (err, told)
        self._run("-s", "Be brief.", said="What is 2 + 3?\nWhat is 3 + 4?\n", model=self._no_system)

    def thinking_is_no_part_of_the_answer(self):
        words = ["-p", "What is 2 + 3?", "-n", "8", "--temp", "0"]
        out, err = self._run(*words, model=self._thinks)
        assert out == "\n" and "[thinking]\n" in err and "[end of thinking]" in err, (out, err)
        out, err = self._run(*words, "-q", model=self._thinks)
        assert out == "\n" and err == "", (out, err)
        out, err = self._run(*words, "--think", "off", model=self._thinks)
        assert out.strip() and "[thinking]" not in err, (out, err)
        _, err = self._run("-n", "8", said=f"/think\n/think off\n/think\nWhat is 2 + 3?\n/think auto\n/think\n/save {self._path('h.json')}\n", model=self._thinks)
        assert "think auto\nthink off\n" in err and err.rstrip().splitlines()[-2] == "think auto" and "[thinking]" not in err, err
        assert "reasoning_content" not in self._saved("h.json")["messages"][1]
        _, err = self._run("-n", "8", said=f"What is 2 + 3?\n/save {self._path('h.json')}\n", model=self._thinks)
        assert self._saved("h.json")["messages"][1]["reasoning_content"], "what was thought is kept beside the answer"

    def seeds(self):
        words = ["-p", "Tell me a story.", "-v", "--temp", "2", "--top-p", "1", "-n", "40"]
        (one, a), (two, b) = self._run(*words), self._run(*words)
        seeds = [re.search(r"\[seed (\d+)\]", err)[1] for err in (a, b)]
        assert seeds[0] != seeds[1] and one != two, "a random one unless given"
        assert self._run(*words, "--seed", seeds[0])[0] == one, "-v says which it was"
        again, err = self._run(*words[2:], "--seed", "5", said="Tell me a story.\n/regenerate\n/regenerate\n")
        assert re.findall(r"\[seed (\d+)\]", err) == ["5", "6", "7"], err
        assert again == "".join(self._run(*words, "--seed", s)[0] for s in "567")

    def the_context_is_shown(self):
        _, err = self._run("-p", "What is 2 + 3?", "-c", "64", "--temp", "0")
        used, size, percent = map(int, re.search(r"\[context: (\d+) of (\d+) tokens, (\d+) %", err).groups())
        prompt, answered = map(int, re.search(r"\[(\d+) prompt tokens.*; (\d+) answered", err).groups())
        assert size == 64 and used == prompt + answered and percent == used * 100 // size, err
        _, err = self._run("-p", "Tell me a long story.", "-c", "24", "--temp", "0")
        assert "100 %; /clear makes room" in err and "[the context is full" in err, err

    # ---- on a terminal ----

    def editing_and_history(self):
        path = self._path("i.json")
        t = self._terminal()
        t.ask("What is 2 + 3é?".encode() + b"\x7f\x7f?\r")
        t.ask(b"\x1b[A\r")  # up: the same again
        t.ask(b"What is 2 + ?\x1b[D3\r")  # left
        t.ask(f"/save {path}\r".encode())
        t.say(b"\x04")
        assert t.end() == 0
        assert self._said("i.json") == ["What is 2 + 3?"] * 3, self._saved("i.json")
        kept = self._path(".local/state/sluice/history")
        assert stat.S_IMODE(os.stat(kept).st_mode) == 0o600
        with open(kept, "a", encoding="utf-8") as f:
            f.write("{\nno entry\n1\n")
        t = self._terminal()  # what was typed in another run
        t.ask(b"\x1b[A\x1b[A\r")
        t.ask(f"/save {path}\r".encode())
        t.say(b"/bye\r")
        assert t.end() == 0
        assert self._said("i.json") == ["What is 2 + 3?"], self._saved("i.json")
        os.unlink(kept)
        with open(kept, "w", encoding="utf-8") as f:
            f.write("precious\n")
        t = self._terminal("--history", kept)
        assert b"holds something else" in t.shown, t.shown
        t.ask(b"/set\r")
        t.say(b"/bye\r")
        assert t.end() == 0
        with open(kept, encoding="utf-8") as f:
            assert f.read() == "precious\n"
        os.unlink(kept)
        t = self._terminal("--history", "off")
        t.ask(b"/set\r")
        t.say(b"/bye\r")
        assert t.end() == 0 and not os.path.exists(kept)

    def a_paste_of_several_lines_is_one_turn(self):
        path = self._path("j.json")
        t = self._terminal()
        lines = ["What is", "", "\t1 + 1, in über-große letters?", "\x03\x04/bye"] + [f"line {i}" for i in range(60)]
        # The end of a paste is looked for byte by byte, after what only begins like one.
        t.say(b"\x1b[200~" + "\r".join(lines).encode() + b"\x1b[20\x1b[201~")
        t.ask(b" \r")
        t.ask(b"\x1b[200~one\x1b[201~ and \x1b[200~two\r\x1b[201~\r")
        t.ask(f"/save {path}\r".encode())
        t.say(b"/bye\r")
        assert t.end() == 0
        said = self._said("j.json")
        want = "\n".join(lines).replace("\x03", "").replace("\x04", "")
        assert said[0].startswith(want) and len(said[0]) - len(want) <= 5, said[0]
        assert said[1] == "one and two" and len(said) == 2, said

    def ctrl_c_stops_an_answer_and_not_the_chat(self):
        t = self._terminal("-c", "200000", model=self._endless)
        shown = t.ask(b"half a line\x03")
        assert b"[Ctrl-D or /bye ends]" in shown, shown
        t.say(b"go on\r")
        t.until(rb"\x1b\[\?2004l")
        t.until(b"\n")
        t.more()  # some of the answer
        t.say(b"\x03")
        assert b"[interrupted]" in t.until(PROMPT)
        assert b"temp 0.7" in t.ask(b"/set\r")
        t.say(b"/bye\r")
        assert t.end() == 0

    def several_lines_typed(self):
        path = self._path("k.json")
        t = self._terminal()
        t.ask(b'"""What is\r')
        t.ask(b"2 + 3?\r")
        t.ask(b'"""\r')
        assert b"[Ctrl-D or /bye ends]" in t.ask(b'"""dropped\r') + t.ask(b"\x03")
        t.ask(f"/save {path}\r".encode())
        t.say(b"\x04")
        assert t.end() == 0
        assert self._said("k.json") == ["What is\n2 + 3?"], self._saved("k.json")

    def colours_are_for_terminals_that_want_them(self):
        for env, wanted in (({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True)):
            t = self._terminal(**env)
            shown = t.ask(b"What is 2 + 3?\r")
            t.say(b"\x04")
            assert t.end() == 0
            assert (b"\x1b[2m" in shown) == wanted, (env, shown)
            assert b"2 + 3 = 5" in plain(shown), shown
        _, err = self._run("-p", "What is 2 + 3?")
        assert "\x1b" not in err, err

    def a_dumb_terminal_will_do(self):
        t = Terminal(self._argv(), {**self._env, "TERM": "dumb"})
        t.until(b"> ")
        t.say(b"What is 2 + 3?\r")
        t.until(rb"2 \+ 3 = 5")
        t.until(b"> ")
        t.say(b"/bye\r")
        assert t.end() == 0 and b"\x1b[?2004h" not in t.shown


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory(prefix="sluice-terminal-") as folder:
        Chat(os.path.abspath(sys.argv[1]), folder).run()


main()
