//! Native stacks: framehop over `.eh_frame` from registers and memory, symbols by blazesym.
