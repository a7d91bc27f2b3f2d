//! What inspector says of one thread, and whether that is so.

use std::collections::BTreeMap;

use serde_json::Value;

use super::expected::{Expected, Row};

/// One entry of `threads`, the part about its wait.
pub(super) struct Answer {
    pub(super) kind: String,
    wait: Value,
}

impl Answer {
    pub(super) fn of(report: &Value, pid: u32, tid: u32) -> Self {
        let mut threads = report["threads"].as_array().into_iter().flatten();
        let thread = threads.find(|thread| thread["pid"] == pid && thread["tid"] == tid);
        let wait = thread.map_or(Value::Null, |thread| thread["wait"].clone());
        Self { kind: wait["kind"].as_str().unwrap_or("nothing").to_owned(), wait }
    }

    /// Kind and flavour.
    pub(super) fn what(&self) -> String {
        match self.wait["flavour"].as_str() {
            Some(flavour) => format!("{}: {flavour}", self.kind),
            None => self.kind.clone(),
        }
    }

    /// What it waits on, as it names it.
    pub(super) fn object(&self) -> String {
        let address = self.wait["address"].as_u64().map(|address| format!("{address:#x}"));
        let object = &self.wait["object"];
        let shared = object["inode"].as_u64().map(|inode| {
            format!(
                "{}:{inode}+{:#x}",
                object["device"].as_str().unwrap_or("?"),
                object["offset"].as_u64().unwrap_or(0)
            )
        });
        let fd = self.wait["fd"].as_i64().map(|fd| format!("fd {fd}"));
        let ends = self.wait["remote"].as_str().map(str::to_owned);
        let parts: Vec<String> = [address, shared, fd, ends].into_iter().flatten().collect();
        if parts.is_empty() {
            self.wait["text"].as_str().unwrap_or_default().chars().take(80).collect()
        } else {
            parts.join(", ")
        }
    }

    /// Who has to act.
    pub(super) fn owner(&self) -> String {
        if let Some(gone) = self.wait["owner_gone"].as_u64() {
            return format!("tid {gone}, which has ended");
        }
        let name = |owner: &Value| {
            let certainty = owner["certainty"].as_str().unwrap_or("?");
            match owner["tid"].as_u64() {
                Some(tid) => format!("tid {tid} ({certainty})"),
                None => format!("pid {} ({certainty})", owner["pid"]),
            }
        };
        let owners: Vec<String> = self.owners().map(name).collect();
        if owners.is_empty() { "—".to_owned() } else { owners.join(", ") }
    }

    fn owners(&self) -> impl Iterator<Item = &Value> {
        self.wait["owners"].as_array().into_iter().flatten()
    }

    /// Everything in which it is not what the fixture says.
    pub(super) fn differs(&self, row: &Row, fact: &Value, facts: &BTreeMap<String, Value>) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut differ = |what: String| wrong.push(format!("{what} expected, got {}", self.wait));
        if self.kind != row.kind {
            differ(format!("kind {}", row.kind));
        }
        if let Some(flavour) = &row.flavour
            && self.wait["flavour"] != flavour.as_str()
        {
            differ(format!("flavour {flavour}"));
        }
        let text = self.wait["text"].as_str().unwrap_or_default();
        if let Some(says) = row.says.as_ref().filter(|says| !text.contains(says.as_str())) {
            differ(format!("{says:?} in its text"));
        }
        if let Some(address) = named(fact, "address", 0).filter(|_| !row.elsewhere)
            && self.wait["address"].as_i64() != Some(address)
        {
            differ(format!("address {address:#x}"));
        }
        if let Some(fd) = named(fact, "fd", -1)
            && self.wait["fd"].as_i64() != Some(fd)
        {
            differ(format!("descriptor {fd}"));
        }
        let python = &self.wait["python_object"];
        let texts = [("cgroup", &self.wait["cgroup"]), ("type", &python["type"]), ("path", &python["path"])];
        for (key, found) in texts.into_iter().chain([("state", &python["state"])]) {
            if fact[key].is_string() && fact[key] != *found {
                differ(format!("{key} {}", fact[key]));
            }
        }
        if row.gone != self.wait["owner_gone"].is_u64() {
            differ(format!("an owner that {}", if row.gone { "has ended" } else { "has not ended" }));
        }
        wrong.extend(self.owners_differ(row, fact, facts));
        wrong
    }

    fn owners_differ(&self, row: &Row, fact: &Value, facts: &BTreeMap<String, Value>) -> Option<String> {
        let certainty = match row.owner {
            Expected::None => None,
            Expected::Proven => Some("proven"),
            Expected::Likely => Some("likely"),
            Expected::Told => fact["certainty"].as_str(),
        };
        let expected = if certainty.is_some() { owners(row, fact, facts) } else { Vec::new() };
        let id = |owner: &Value| {
            if owner["tid"].is_null() { owner["pid"].as_i64() } else { owner["tid"].as_i64() }
        };
        let mut found: Vec<i64> = self.owners().filter_map(id).collect();
        found.sort_unstable();
        let sure = self.owners().all(|owner| owner["certainty"].as_str() == certainty);
        if certainty.is_some() && expected.is_empty() {
            return Some("the fixture does not say who the owner is".to_owned());
        }
        (found != expected || !sure).then(|| {
            format!("owners {expected:?} ({}) expected, got {}", certainty.unwrap_or("none"), self.wait)
        })
    }
}

/// A number that the fixture says, unless it is the one that says nothing.
fn named(fact: &Value, key: &str, nothing: i64) -> Option<i64> {
    fact[key].as_i64().filter(|&value| value != nothing)
}

/// The threads or processes that the fixture says are the owners: `owner`, a number, or `owners`, names of its threads.
fn owners(row: &Row, fact: &Value, facts: &BTreeMap<String, Value>) -> Vec<i64> {
    let names = fact["owners"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let threads = names.filter_map(|name| named(facts.get(name)?, "tid", 0));
    let others = row.with.iter().filter_map(|name| facts.get(name));
    let numbers = std::iter::once(fact).chain(others).filter_map(|fact| named(fact, "owner", 0));
    let mut owners: Vec<i64> = threads.chain(numbers).collect();
    owners.sort_unstable();
    owners.dedup();
    owners
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn differences(wait: &Value, row: &str, fact: &Value) -> usize {
        let report = json!({ "threads": [{ "pid": 1, "tid": 2, "wait": wait }] });
        let row: Row = toml::from_str(row).expect("a row");
        let other = json!({ "tid": 9, "owner": 8 });
        let facts = BTreeMap::from([("other".to_owned(), other)]);
        Answer::of(&report, 1, 2).differs(&row, fact, &facts).len()
    }

    #[test]
    fn an_answer_is_right_or_not() {
        let owner = json!([{ "pid": 1, "tid": 7, "certainty": "proven" }]);
        let wait = json!({ "kind": "mutex", "flavour": "normal", "address": 16, "owners": owner });
        let fact = json!({ "tid": 2, "address": 16, "fd": -1, "owner": 7 });
        let row = "kind = \"mutex\"\nowner = \"proven\"";
        assert_eq!(differences(&wait, row, &fact), 0);
        assert_eq!(differences(&wait, "kind = \"rwlock\"\nowner = \"proven\"", &fact), 1);
        assert_eq!(differences(&wait, "kind = \"mutex\"\nowner = \"likely\"", &fact), 1);
        assert_eq!(differences(&wait, "kind = \"mutex\"", &fact), 1, "an owner that must not be");
        assert_eq!(differences(&wait, "kind = \"mutex\"\nowner = \"proven\"\ngone = true", &fact), 1);
        assert_eq!(
            differences(&wait, row, &json!({ "tid": 2 })),
            1,
            "an owner that the fixture does not know"
        );
        assert_eq!(differences(&wait, row, &json!({ "tid": 2, "address": 17, "fd": 3, "owner": 8 })), 3);
        assert_eq!(differences(&Value::Null, row, &fact), 3, "a thread that is not in the report");
        let process =
            json!({ "kind": "pipe-read", "owners": [{ "pid": 7, "tid": null, "certainty": "proven" }] });
        assert_eq!(
            differences(&process, "kind = \"pipe-read\"\nowner = \"proven\"", &json!({ "owner": 7 })),
            0
        );
    }

    #[test]
    fn several_owners_and_what_python_calls_it() {
        let owner = |tid: u32| json!({ "pid": 1, "tid": tid, "certainty": "likely" });
        let object = json!({ "type": "queue.Queue", "state": "0 items" });
        let wait = json!({ "kind": "python-lock", "text": "Queue.get on Queue", "python_object": object,
            "owners": [owner(9), owner(8)] });
        let fact = json!({ "tid": 2, "type": "queue.Queue", "state": "0 items", "owners": ["other"], "certainty": "likely" });
        let row = |more: &str| format!("kind = \"python-lock\"\nowner = \"told\"\n{more}");
        assert_eq!(differences(&wait, &row("with = [\"other\"]\nsays = \"on Queue\""), &fact), 0);
        assert_eq!(differences(&wait, &row(""), &fact), 1, "one owner too many");
        assert_eq!(differences(&wait, &row("with = [\"other\"]\nsays = \"Lock\""), &fact), 1);
        let other = json!({ "tid": 2, "type": "queue.Queue", "state": "1 items" });
        assert_eq!(differences(&wait, &row(""), &other), 2, "another state, and owners that must not be");
    }
}
