#!/usr/bin/env python3
"""Writes man pages from what `sluice --help` and `sluice COMMAND --help` print, so that they cannot drift apart.

usage: make_man.py SLUICE OUTDIR"""
import itertools
import os
import re
import subprocess
import sys


def escape(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in ".'" else text


def help_of(program, *command):
    return subprocess.run([program, *command, "--help"], stdout=subprocess.PIPE, check=True, text=True).stdout.rstrip().split("\n")


OPTION = re.compile(r"  (-\w, |    )?(--?[a-z].*?)(?:  +(.*))?$")


def options(lines):
    """Turns the body of a help text into roff: headings, options with their texts, paragraphs."""
    out = []
    begun = False  # a paragraph, by the line before
    for line, after in zip(lines, lines[1:] + [""]):
        option = OPTION.match(line)
        heading = line[:1].isupper() and OPTION.match(after)
        if heading:
            out.append(f".SS {escape(line.rstrip(':'))}")
        elif option:
            name = (option[1] or "").strip() + (" " if (option[1] or "").strip() else "") + option[2]
            out += [".TP", f"\\fB{escape(name)}\\fR"]
            if option[3]:
                out.append(escape(option[3]))
        elif line.strip():
            if not line.startswith("   "):
                out += [".br" if line.startswith(" ") else ".PP"] if line.startswith(" ") or not begun else []
            out.append(escape(line.strip()))
        begun = bool(line.strip()) and not heading and not option
    return out


# Of every command: cli/options/args.h.
EXIT_STATUS = [".SH EXIT STATUS", "0: done. 1: it failed at work. 2: the words of the command line are wrong; nothing was opened."]
EXIT_STATUS_OF = {"sluice-run": ["1 also: of turns from a pipe, one failed. 130: an answer was interrupted where nobody types turns."]}


VARIABLES = re.compile(r"Options can also be set by environment variables:")


def environment(lines):
    """The section about variables: what the help ends with, and the name for each option."""
    at = next((i for i, l in enumerate(lines) if VARIABLES.match(l)), None)
    if at is None:
        return []
    names = [m[1] for l in lines[:at] if (m := re.match(r" {2,6}(?:-\w, )?--([a-z-]+)", l))]
    told = [n for n in names if n not in ("help", "api-key")]
    rows = [f".TP\n\\fBSLUICE_{n.upper().replace('-', '_')}\\fR\n\\fB{escape('--' + n)}\\fR" for n in told]
    return [".SH ENVIRONMENT", " ".join(map(escape, lines[at:]))] + rows


def page(name, title, version, lines):
    about = list(itertools.takewhile(str.strip, lines))
    what = re.split(r"[.:;](?:\s|$)", " ".join(about))[0]
    usage = [l[len("usage: "):] if l.startswith("usage: ") else l.strip() for l in lines if re.match(r"usage: |       sluice ", l)]
    body = [about[0][0].upper() + about[0][1:]] + about[1:] + [l for l in lines[len(about):] if not re.match(r"usage: |       sluice ", l)]
    roff = [f'.TH {title} 1 "" "sluice {version}" "Sluice"', ".SH NAME", f"{escape(name)} \\- {escape(what[0].lower() + what[1:])}", ".SH SYNOPSIS"]
    for u in usage:
        roff += [".nf", escape(u), ".fi"]
    variables = environment(body)
    body = list(itertools.takewhile(lambda l: not VARIABLES.match(l), body))
    return "\n".join(roff + [".SH DESCRIPTION"] + options(body) + variables + EXIT_STATUS + EXIT_STATUS_OF.get(name, [])) + "\n"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    program, outdir = sys.argv[1:]
    os.makedirs(outdir, exist_ok=True)
    top = help_of(program)
    version = re.match(r"sluice ([\w.]+)", top[0])[1]
    top[0] = top[0].split(": ", 1)[1]
    commands = [m[1] for l in top if (m := re.match(r"  ([a-z]+)  +\S", l))]
    for name in commands:
        with open(os.path.join(outdir, f"sluice-{name}.1"), "w") as f:
            f.write(page(f"sluice-{name}", f"SLUICE-{name.upper()}", version, help_of(program, name)))
    text = page("sluice", "SLUICE", version, [l for l in top if not re.match(r"  [a-z]+  +\S", l)])
    rows = "".join(f".TP\n\\fBsluice\\-{m[1]}\\fR(1)\n{escape(m[2])}\n" for l in top if (m := re.match(r"  ([a-z]+)  +(\S.*)", l)))
    with open(os.path.join(outdir, "sluice.1"), "w") as f:
        f.write(text + ".SH COMMANDS\n" + rows)


main()
