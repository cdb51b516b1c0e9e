"""Checks the documentation against the repository and the program: usage: docs.py PLUMBLINE TOP. Prints a line for each check."""
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
    """Returns the anchors of a page's headings, as repository web pages make them."""
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
OPTION = r"(?<![\w-])--[a-z][a-z-]*"
options = {command: set(re.findall(OPTION, help_of(command))) for command in commands}
options["io"] |= set(re.findall(OPTION, help_of("io", "report")))
global_options = set(re.findall(OPTION, help_of()))


def linked():
    """Returns the page that the table of commands links for each command."""
    for command, target in re.findall(r"^\| \[`([a-z]+)`\]\(([^)#]+)", texts["docs/commands/README.md"], re.M):
        yield command, os.path.normpath(os.path.join("docs/commands", target))


def words_of(page):
    return set(re.findall(OPTION, texts.get(page, "")))


def in_tables(page):
    """Returns the options in the first cells of a page's tables."""
    return {option for cell in re.findall(r"^\|([^|]*)", texts[page], re.M) for option in re.findall(OPTION, cell)}


page_of = dict(linked())


def named():
    """Returns each `plumbline COMMAND ...` of a line, up to the end of that command line."""
    for page, text in texts.items():
        if page == "CHANGELOG.md":
            continue
        for line in text.splitlines():
            # The arguments after `--` belong to another program.
            for words in re.findall(r"(?:^|[\s`])plumbline ([a-z]+(?: [^`|#;]*)?)", line):
                if line.startswith("    ") or f"`plumbline {words.split()[0]}" in line or f"`sudo plumbline {words.split()[0]}" in line:
                    yield page, words.split(" -- ")[0].split()


def is_hidden(command):
    return subprocess.run([program, "help", command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


seen = list(named())
said("every link leads somewhere", set(links()))
said("every command that is named is one", {f"{page}: {words[0]}" for page, words in seen if words[0] not in commands and not is_hidden(words[0])})
said(
    "every option that is named with a command is one of its",
    {f"{page}: {words[0]} {word}" for page, words in seen if words[0] in commands for word in re.findall(r"(?<!\S)--[a-z][a-z-]*", " ".join(words)) if word not in options[words[0]] | {"--help"}},
)
said("every command is in the documentation", set(commands) - {words[0] for _, words in seen})
indexes = ["docs/README.md", "docs/commands/README.md"]
said(
    "every page is in the index",
    {page for index in indexes for page in glob.glob(f"{os.path.dirname(index)}/*.md") if page != index and f"({os.path.basename(page)})" not in texts[index]},
)
said("every command is in the table of commands, and nothing else is", set(commands) ^ set(page_of))
said("every option of a command is on its page", {f"{page}: {command} {option}" for command, page in page_of.items() for option in options.get(command, set()) - global_options - words_of(page)})
said("the options of every command are with the table", global_options - words_of(indexes[1]))
said(
    "no page of a command has an option that the command has not",
    {f"{page}: {option}" for command, page in page_of.items() if page == f"docs/commands/{command}.md" for option in in_tables(page) - options.get(command, set())},
)
sources = "".join(open(file).read() for file in glob.glob("crates/plumbline/src/publish/**/*.rs", recursive=True))
metrics = set(re.findall(r'"(plumbline_[a-z_]+)"', sources))
documented = set(re.findall(r"plumbline_[a-z_]+", texts["docs/metrics.md"]))
said("every metric is documented", {metric for metric in metrics if metric not in documented and not {f"{metric}_total", f"{metric}_info"} & documented})
