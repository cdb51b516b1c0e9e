"""Holds the documentation against the repository and the program: usage: docs.py PLUMBLINE TOP. Prints a line for each thing that was looked at."""
import glob
import os
import re
import subprocess
import sys

program, top = sys.argv[1:]
os.chdir(top)
pages = sorted(glob.glob("*.md") + glob.glob("docs/**/*.md", recursive=True) + glob.glob("vm/*.md") + glob.glob("ldms/*.md"))
texts = {page: open(page).read() for page in pages}


def said(what, wrong):
    print(f"not ok - {what}\n  # {'; '.join(sorted(wrong))[:2000]}" if wrong else f"ok - {what}")


def anchors(text):
    """Of its headings, as web pages of repositories make them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links():
    for page, text in texts.items():
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" in target:
                continue
            path, _, anchor = target.partition("#")
            there = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            if not os.path.exists(there):
                yield f"{page}: {target}"
            elif anchor and there.endswith(".md") and anchor not in anchors(open(there).read()):
                yield f"{page}: {target}: no such heading"


def help_of(*words):
    return subprocess.run([program, *words, "--help"], stdout=subprocess.PIPE, check=True, text=True).stdout


commands = re.findall(r"^  ([a-z]+) ", help_of().split("Commands:")[1].split("Options:")[0], re.M)
commands.remove("help")
options = {command: set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", help_of(command))) for command in commands}
options["io"] |= set(re.findall(r"--[a-z][a-z-]*", help_of("io", "report")))


def named():
    """Each `plumbline COMMAND ...` of a line, as far as it is one command line."""
    for page, text in texts.items():
        if page == "CHANGELOG.md":
            continue
        for line in text.splitlines():
            # What comes behind `--` is another program's.
            for words in re.findall(r"(?:^|[\s`])plumbline ([a-z]+(?: [^`|#;]*)?)", line):
                if line.startswith("    ") or f"`plumbline {words.split()[0]}" in line or f"`sudo plumbline {words.split()[0]}" in line:
                    yield page, words.split(" -- ")[0].split()


seen = list(named())
said("every link leads somewhere", set(links()))
said("every command that is named is one", {f"{page}: {words[0]}" for page, words in seen if words[0] not in commands})
said(
    "every option that is named with a command is one of its",
    {f"{page}: {words[0]} {word}" for page, words in seen if words[0] in commands for word in re.findall(r"(?<!\S)--[a-z][a-z-]*", " ".join(words)) if word not in options[words[0]] | {"--help"}},
)
said("every command is in the documentation", set(commands) - {words[0] for _, words in seen})
index = texts["docs/README.md"]
said("every page is in the index", {page for page in glob.glob("docs/*.md") if page != "docs/README.md" and f"({os.path.basename(page)})" not in index})
sources = "".join(open(file).read() for file in glob.glob("crates/plumbline/src/publish/**/*.rs", recursive=True))
metrics = set(re.findall(r'"(plumbline_[a-z_]+)"', sources))
documented = set(re.findall(r"plumbline_[a-z_]+", texts["docs/metrics.md"]))
said("every metric is documented", {metric for metric in metrics if metric not in documented and not {f"{metric}_total", f"{metric}_info"} & documented})
