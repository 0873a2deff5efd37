"""The receivers' code on the page verifies what we sign, and refuses what was changed."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from duepoint.targets.webhook import signing

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "sign-and-verify-a-webhook.md"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + "QUJD" * 8
BODY = '{"text": "ünï"}'


def snippet(language: str) -> str:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)[0]


def cases() -> list[tuple[bool, dict[str, str], str]]:
    """(is valid, headers, body)"""
    now = str(int(time.time()))
    signers = [signing.signer(OTHER), signing.signer(SECRET)]
    signature = signing.header(signers, "msg_1", now, BODY.encode())
    good = {"webhook-id": "msg_1", "webhook-timestamp": now, "webhook-signature": signature}
    old = str(int(now) - 3600)
    late = signing.header(signers, "msg_1", old, BODY.encode())
    return [
        (True, good, BODY),
        (False, good, BODY + " "),
        (False, good | {"webhook-id": "msg_2"}, BODY),
        (False, good | {"webhook-signature": "v1,AAAA v2 garbage"}, BODY),
        (False, good | {"webhook-signature": "v1,ünï"}, BODY),
        (False, good | {"webhook-signature": ""}, BODY),
        (False, good | {"webhook-timestamp": old, "webhook-signature": late}, BODY),
    ]


def test_python_verifies():
    space: dict[str, object] = {}
    exec(snippet("python"), space)
    found = [space["verify"](SECRET, headers, body.encode()) for _, headers, body in cases()]
    assert found == [valid for valid, *_ in cases()]


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")
def test_node_verifies(tmp_path):
    given = json.dumps([[SECRET, headers, body] for _, headers, body in cases()])
    code = f"""{snippet("javascript")}
    console.log(JSON.stringify({given}.map(([s, h, b]) => verify(s, h, Buffer.from(b)))));"""
    (tmp_path / "verify.js").write_text(code)
    done = subprocess.run(
        ["node", tmp_path / "verify.js"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [valid for valid, *_ in cases()]


@pytest.mark.skipif(shutil.which("go") is None, reason="needs Go")
def test_go_verifies(tmp_path):
    (tmp_path / "verify.go").write_text(snippet("go"))
    (tmp_path / "main.go").write_text(
        """package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
)

func main() {
	var cases []struct {
		Secret, Body string
		Headers map[string]string
	}
	json.NewDecoder(os.Stdin).Decode(&cases)
	for _, one := range cases {
		headers := http.Header{}
		for name, value := range one.Headers {
			headers.Set(name, value)
		}
		fmt.Println(Verify(one.Secret, headers, []byte(one.Body)))
	}
}
"""
    )
    (tmp_path / "go.mod").write_text("module verify\n\ngo 1.21\n")
    given = [{"Secret": SECRET, "Body": body, "Headers": headers} for _, headers, body in cases()]
    done = subprocess.run(
        ["go", "run", "."], cwd=tmp_path, input=json.dumps(given), capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout.split() == [str(valid).lower() for valid, *_ in cases()]


@pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK")
def test_java_verifies(tmp_path):
    (tmp_path / "Signature.java").write_text(snippet("java"))
    (tmp_path / "Main.java").write_text(
        """import java.util.Base64;
import java.util.Map;
import java.util.Scanner;
import static java.nio.charset.StandardCharsets.UTF_8;

class Main {
  static String next(Scanner words) {
    return new String(Base64.getDecoder().decode(words.next().substring(1)), UTF_8);
  }

  public static void main(String[] arguments) throws Exception {
    for (Scanner words = new Scanner(System.in); words.hasNext();) {
      String secret = next(words), id = next(words), sent = next(words), signature = next(words);
      String body = next(words);
      System.out.println(
          Signature.verify(
              secret,
              Map.of("webhook-id", id, "webhook-timestamp", sent, "webhook-signature", signature),
              body.getBytes(UTF_8)));
    }
  }
}
"""
    )
    texts = [
        [SECRET, *(headers[f"webhook-{name}"] for name in ("id", "timestamp", "signature")), body]
        for _, headers, body in cases()
    ]
    # A sign before each, because an empty text is no word.
    given = " ".join("=" + base64.b64encode(one.encode()).decode() for row in texts for one in row)
    subprocess.run(["javac", "Signature.java", "Main.java"], cwd=tmp_path, check=True)
    done = subprocess.run(
        ["java", "Main"], cwd=tmp_path, input=given, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(valid).lower() for valid, *_ in cases()]
