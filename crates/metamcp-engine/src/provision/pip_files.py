# Prints name, hash and date of every file of some packages as JSON, by package, asked of the index through pip's own session.
import json, sys
from html.parser import HTMLParser
from pip._internal.commands import create_command
command = create_command("index")
options, _ = command.parse_args(["versions", sys.argv[1]])
kinds = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
def files_of(answer):
    files = []
    if "json" in answer.headers.get("content-type", ""):
        for file in answer.json()["files"]:
            files.append({"filename": file["filename"], "sha256": file.get("hashes", {}).get("sha256"),
                          "uploaded": file.get("upload-time"), "yanked": bool(file.get("yanked"))})
        return files
    class Links(HTMLParser):
        def handle_starttag(self, tag, attributes):
            if tag == "a":
                at = dict(attributes)
                url, _, mark = (at.get("href") or "").partition("#")
                files.append({"filename": url.rsplit("/", 1)[-1],
                              "sha256": mark[7:] if mark.startswith("sha256=") else None,
                              "uploaded": at.get("data-upload-time"), "yanked": "data-yanked" in at})
    Links().feed(answer.text)
    return files
all = {}
with command._build_session(options) as session:
    for name in sys.argv[1:]:
        answer = session.get(options.index_url.rstrip("/") + "/" + name + "/", headers={"Accept": kinds})
        if answer.status_code == 404:
            all[name] = []
            continue
        answer.raise_for_status()
        all[name] = files_of(answer)
print(json.dumps(all))
