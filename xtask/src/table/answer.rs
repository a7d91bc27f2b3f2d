//! What inspector says of one thread, and whether that is so.

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
    pub(super) fn differs(&self, row: &Row, fact: &Value) -> Vec<String> {
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
        let named = |key: &str, none: i64| fact[key].as_i64().filter(|&value| value != none);
        if let Some(address) = named("address", 0).filter(|_| !row.elsewhere)
            && self.wait["address"].as_i64() != Some(address)
        {
            differ(format!("address {address:#x}"));
        }
        if let Some(fd) = named("fd", -1)
            && self.wait["fd"].as_i64() != Some(fd)
        {
            differ(format!("descriptor {fd}"));
        }
        if row.gone != self.wait["owner_gone"].is_u64() {
            differ(format!("an owner that {}", if row.gone { "has ended" } else { "has not ended" }));
        }
        let certainty = match row.owner {
            Expected::Any => return wrong,
            Expected::None if self.owners().next().is_none() => return wrong,
            Expected::None => "no",
            Expected::Proven => "proven",
            Expected::Likely => "likely",
        };
        let owner = named("owner", 0);
        let is_owner = |found: &Value| {
            let id = if found["tid"].is_null() { &found["pid"] } else { &found["tid"] };
            found["certainty"] == certainty && (owner.is_none() || id.as_i64() == owner)
        };
        if self.owners().count() != 1 || !self.owners().all(is_owner) {
            let whom = owner.map_or_else(String::new, |owner| format!(" {owner}"));
            differ(format!("{certainty} owner{whom}"));
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn differences(wait: &Value, row: &str, fact: &Value) -> usize {
        let report = json!({ "threads": [{ "pid": 1, "tid": 2, "wait": wait }] });
        let row: Row = toml::from_str(row).expect("a row");
        Answer::of(&report, 1, 2).differs(&row, fact).len()
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
        assert_eq!(differences(&wait, "kind = \"mutex\"\nowner = \"any\"\ngone = true", &fact), 1);
        assert_eq!(differences(&wait, row, &json!({ "tid": 2, "address": 17, "fd": 3, "owner": 8 })), 3);
        assert_eq!(differences(&Value::Null, row, &fact), 3, "a thread that is not in the report");
        let process =
            json!({ "kind": "pipe-read", "owners": [{ "pid": 7, "tid": null, "certainty": "proven" }] });
        assert_eq!(
            differences(&process, "kind = \"pipe-read\"\nowner = \"proven\"", &json!({ "owner": 7 })),
            0
        );
    }
}
