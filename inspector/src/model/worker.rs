//! What a process does in a serving engine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A process that a knowledge file recognised.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Worker {
    /// `sglang`, `vllm`, `dynamo`, `tensorrt-llm`, or the name in the user's knowledge file; `python` for a plain one.
    pub engine: String,
    /// Kind of process inside the engine: `scheduler`, `http`, `detokenizer`, `api-server`, `engine-core`, `worker`…
    pub kind: String,
    /// `prefill`, `decode`, `unified`, `encode`; `None` where the engine has no such split or it is not known.
    pub role: Option<String>,
    /// KV transfer backend: `nixl`, `mooncake`…, where the flags say so.
    pub backend: Option<String>,
    /// Rank in the form the title gives: `TP0`, `DP1_TP3`.
    pub rank: Option<String>,
    /// Indices of its GPUs, from `CUDA_VISIBLE_DEVICES` and open `/dev/nvidia*`.
    pub gpus: Vec<u32>,
    /// Pid of the process whose arguments hold the flags (a child's title hides its own).
    pub flags_from: Option<u32>,
    /// Name of the knowledge file that recognised it.
    pub knowledge: String,
}

impl Worker {
    /// `decode scheduler TP0`: how sentences name the process.
    pub fn label(&self) -> String {
        [self.role.as_deref(), Some(self.kind.as_str()), self.rank.as_deref()]
            .into_iter()
            .flatten()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    }
}
