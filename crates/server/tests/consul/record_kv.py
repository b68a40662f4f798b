#!/usr/bin/env python3
"""Records the answers of a real Consul to requests for keys, sessions, transactions and events.

usage: record_kv.py http://127.0.0.1:8500 > kv-1.8.7.json

`consul_kv.rs` sends the same requests to Convoke and compares the answers. A step saves the id of a created session, or the
modify index of the first key of its answer, under a name; later steps use it as {name}. Use a fresh `consul agent -dev`: the
keys of the steps must not exist.
"""

import json
import re
import sys
import urllib.error
import urllib.request

STEPS = []


def step(method, path, body=None, save=None, differs=None, wait=None):
    found = {"method": method, "path": path}
    for name, value in (("body", body), ("save", save), ("differs", differs), ("wait_ms", wait)):
        if value is not None:
            found[name] = value
    STEPS.append(found)


def get(path, **options):
    step("GET", path, **options)


def put(path, body="", **options):
    step("PUT", path, body=body, **options)


def delete(path, **options):
    step("DELETE", path, **options)


def txn(operations, **options):
    put("/v1/txn", operations if isinstance(operations, str) else json.dumps(operations), **options)


def kv(verb, key, **fields):
    return {"KV": {"Verb": verb, "Key": key, **{name.capitalize(): value for name, value in fields.items()}}}


def keys():
    for query in ("", "?raw", "?recurse", "?keys"):
        get("/v1/kv/none" + query)
    put("/v1/kv/a", "1")
    get("/v1/kv/a", save="a1")
    for query in ("?raw", "?keys", "?recurse", "?stale", "?consistent"):
        get("/v1/kv/a" + query)
    put("/v1/kv/a", "1")
    get("/v1/kv/a")
    put("/v1/kv/a?flags=7", "2")
    get("/v1/kv/a", save="a2")
    put("/v1/kv/a?cas=0", "3")
    put("/v1/kv/a?cas={a1}", "3")
    put("/v1/kv/a?cas={a2}&flags=9", "3")
    get("/v1/kv/a")
    put("/v1/kv/fresh?cas=5", "1")
    put("/v1/kv/fresh?cas=0", "1")
    get("/v1/kv/fresh", save="fresh")
    put("/v1/kv/empty")
    get("/v1/kv/empty")
    get("/v1/kv/empty?raw")
    put("/v1/kv/sp%20ace/%C3%BC", "x")
    get("/v1/kv/sp%20ace/?recurse")
    delete("/v1/kv/fresh?cas=1")
    delete("/v1/kv/fresh?cas=0")
    delete("/v1/kv/fresh?cas={fresh}")
    delete("/v1/kv/fresh?cas=7")
    get("/v1/kv/fresh")
    delete("/v1/kv/never")
    for key in ("s/a/b", "s/a/c", "s/d", "st"):
        put("/v1/kv/" + key, key)
    for query in ("s/?keys&separator=/", "s?keys&separator=/", "s/?keys&separator=", "s/?keys", "s/?recurse", "s/a?keys&separator=/"):
        get("/v1/kv/" + query)
    delete("/v1/kv/s/?recurse")
    get("/v1/kv/s/?recurse")
    get("/v1/kv/s?keys")


def errors():
    get("/v1/kv/")
    put("/v1/kv/", "1")
    delete("/v1/kv/")
    for query in ("cas=x", "cas=99999999999999999999", "flags=x", "flags=-1"):
        put("/v1/kv/a?" + query, "1")
    for query in ("acquire=x&release=y", "acquire=x&cas=0", "release=x&cas=0"):
        put("/v1/kv/a?" + query, "1")
    delete("/v1/kv/a?cas=0&recurse")
    for query in ("index=x", "wait=x", "stale&consistent"):
        get("/v1/kv/a?" + query)
    put("/v1/kv/a?acquire=x", "1")
    put("/v1/kv/a?acquire=aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", "1")
    put("/v1/kv/a?release=aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", "1")
    put("/v1/kv/a?acquire=", "1")
    put("/v1/kv/a?release=", "1")
    step("POST", "/v1/kv/a")


def sessions():
    put("/v1/session/create", '{"TTL":"15s","LockDelay":"0s","Name":"one"}', save="S1")
    put("/v1/session/create", '{"ttl":"90s","lockdelay":1,"behavior":"delete"}', save="S2")
    get("/v1/session/info/{S1}")
    get("/v1/session/info/{S2}")
    put("/v1/session/renew/{S1}")
    get("/v1/session/info/aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee")
    get("/v1/session/node/none")
    for path in ("info/x", "info/"):
        get("/v1/session/" + path, differs="Consul adds the headers of a read without an index" if path == "info/x" else None)
    for path in ("renew/aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", "renew/x", "renew/", "destroy/", "destroy/x",
                 "destroy/aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"):
        put("/v1/session/" + path)
    for body in ('{"TTL":"1s"}', '{"TTL":"90000s"}', '{"TTL":"x"}', '{"Behavior":"x"}', '{"Node":"unknown"}',
                 '{"LockDelay":"1x"}', '{"TTL":15}'):
        put("/v1/session/create", body)
    put("/v1/session/create", '{"Checks":["x"]}', differs="the text adds what sessions can depend on")
    put("/v1/session/create", '{', differs="the parser words it in another way")
    get("/v1/session/destroy/x")


def locks():
    put("/v1/kv/l?acquire={S1}", "v1")
    get("/v1/kv/l")
    put("/v1/kv/l?acquire={S1}", "v2")
    get("/v1/kv/l")
    put("/v1/kv/l?acquire={S2}", "v3")
    put("/v1/kv/l?release={S2}", "v3")
    put("/v1/kv/l", "v4")
    get("/v1/kv/l")
    put("/v1/kv/l?acquire={S1}", "v4")
    put("/v1/kv/l?release={S1}", "v5")
    get("/v1/kv/l")
    put("/v1/kv/l?release={S1}", "v5")
    put("/v1/kv/l?acquire={S2}&flags=3", "v6")
    get("/v1/kv/l")
    delete("/v1/kv/l")
    put("/v1/kv/l?acquire={S1}", "v7")
    get("/v1/kv/l")
    put("/v1/kv/m?acquire={S2}", "mine")
    put("/v1/session/destroy/{S2}")
    get("/v1/kv/m")
    put("/v1/kv/m?acquire={S1}", "soon")
    put("/v1/kv/m?acquire={S1}", "later", wait=1500)
    get("/v1/kv/m")
    put("/v1/session/destroy/{S1}")
    get("/v1/kv/m")
    get("/v1/kv/l")
    put("/v1/session/renew/{S1}")
    put("/v1/kv/l?acquire={S1}", "x")


def transactions():
    put("/v1/session/create", '{"TTL":"15s","LockDelay":"0s"}', save="S3")
    put("/v1/session/create", '{"TTL":"15s","LockDelay":"0s"}', save="S4")
    for body in ("[]", "[{}]"):
        txn(body)
    for body in ("{}", '[{"KV":{"Verb":"set","Key":"a","Bogus":1}}]', '[{"Session":{}}]'):
        txn(body)
    for body in ("x", '[{"KV":{"Verb":"set","Key":"a","Value":"!!"}}]'):
        txn(body, differs="the parser words it in another way")
    txn([kv("set", "t1", value="MQ=="), kv("get", "t1")])
    get("/v1/kv/t1", save="t1")
    txn([kv("get", "t1")])
    txn([kv("get", "none")])
    txn([kv("get", "none"), kv("set", "t2", value="MQ==")])
    get("/v1/kv/t2")
    txn([kv("cas", "t1", index=1, value="Mg==")])
    txn([kv("cas", "t3", index=0, value="MQ=="), kv("cas", "t1", index=0, value="MQ=="), kv("cas", "none", index=5)])
    txn('[{"kv":{"verb":"cas","key":"t1","index":{t1},"value":"Mg==","flags":4}}]')
    txn([kv("foo", "t1")])
    txn([kv("delete", "none"), kv("delete-cas", "none", index=4), kv("delete-cas", "t1", index=4)])
    txn([kv("delete", "none")])
    txn([kv("delete-cas", "none", index=0)])
    txn([kv("set", "")])
    txn([kv("get-tree", "")])
    txn([kv("check-index", "none", index=0), kv("check-not-exists", "none"), kv("check-not-exists", "t1")])
    txn([kv("check-index", "none", index=4), kv("check-session", "t1", session="x"), kv("check-session", "none", session="x"),
         kv("lock", "t1", session="x"), kv("lock", "t1"), kv("unlock", "t1", session="x"), kv("unlock", "t1"),
         kv("unlock", "none", session="x"), kv("lock", "t1", session="aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"),
         kv("unlock", "t1", session="aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee")])
    txn([kv("lock", "tl", session="{S3}", value="MQ==", flags=5), kv("check-session", "tl", session="{S3}"), kv("get", "tl")])
    get("/v1/kv/tl")
    txn([kv("lock", "tl", session="{S4}", value="MQ==")])
    txn([kv("check-session", "tl", session="{S4}")])
    txn([kv("unlock", "tl", session="{S4}", value="MQ=="), kv("lock", "tl2", session="{S4}")])
    txn([kv("unlock", "tl", session="{S3}", value="Mg=="), kv("set", "tl", value="Mw=="), kv("get-tree", "t"),
         kv("delete-tree", "t"), kv("get-tree", "t"), kv("set", "tz", value=None)])
    get("/v1/kv/t?recurse")
    txn([kv("set", "u/a", value="MQ=="), kv("set", "u/b", value="Mg=="), kv("lock", "u/c", session="{S3}"),
         kv("lock", "u/d", session="{S3}")])
    txn([kv("get-tree", "u/"), kv("check-not-exists", "u/z")])
    txn([kv("delete", "u/a"), kv("get-tree", "u/"), kv("delete-tree", "u/")])
    get("/v1/kv/u/?recurse")
    txn([kv("get", "none")] * 65)
    txn([{"Node": {"Verb": "get", "Node": {"Node": "none"}}}], differs="Convoke has transactions of keys only")
    put("/v1/session/destroy/{S3}")
    put("/v1/session/destroy/{S4}")


def events():
    get("/v1/event/list")
    put("/v1/event/fire/deploy", "hello", save="E1")
    put("/v1/event/fire/a/b", save="E2")
    put("/v1/event/fire/deploy?node=n.*", "more", save="E3")
    put("/v1/event/fire/deploy?node=other", save="E4")
    put("/v1/event/fire/deploy?service=none&tag=x", save="E5")
    get("/v1/event/list", wait=1000)
    get("/v1/event/list?name=deploy")
    get("/v1/event/list?name=none")
    get("/v1/event/list?name=none&index=1&wait=100ms")
    for query in ("index=x", "wait=x"):
        get("/v1/event/list?" + query)
    put("/v1/event/fire/")
    put("/v1/event/fire/deploy?tag=x")
    put("/v1/event/fire/deploy?dc=other")
    put("/v1/event/fire/deploy?node=%5B", differs="the regular expressions have other messages")
    put("/v1/event/fire/deploy", "x" * 600, differs="the text says how large the event is")
    step("POST", "/v1/event/list")
    step("GET", "/v1/event/fire/deploy")


HEADERS = ("content-type", "x-consul-index", "x-consul-knownleader", "x-consul-lastcontact", "allow")


def compact(text, kind):
    if "json" not in kind:
        return text
    # Numbers of events: their order is that of the list.
    return re.sub(r'"LTime":[1-9][0-9]*', '"LTime":1', json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False))


def record(base):
    import time

    saved = {}
    for found in STEPS:
        def filled(text):
            for name, value in saved.items():
                text = text.replace("{%s}" % name, value)
            return text

        time.sleep(found.get("wait_ms", 0) / 1000)
        body = filled(found["body"]).encode() if "body" in found else None
        request = urllib.request.Request(base + filled(found["path"]), data=body, method=found["method"])
        try:
            answer = urllib.request.urlopen(request)
        except urllib.error.HTTPError as error:
            answer = error
        kind = answer.headers.get("content-type") or ""
        text = compact(answer.read().decode(), kind)
        found["status"] = answer.status
        found["headers"] = {name: answer.headers[name] for name in HEADERS if answer.headers.get(name) is not None}
        if "save" in found:
            parsed = json.loads(text)
            saved[found["save"]] = parsed["ID"] if isinstance(parsed, dict) else str(parsed[0]["ModifyIndex"])
        for name, value in saved.items():
            if len(value) == 36:
                text = text.replace(value, "{%s}" % name)
        found["answer"] = text
    json.dump(STEPS, sys.stdout, indent=1, ensure_ascii=False)
    print()


if __name__ == "__main__":
    for sequence in (keys, errors, sessions, locks, transactions, events):
        sequence()
    record(sys.argv[1].rstrip("/"))
