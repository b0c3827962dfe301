//! Loads and stores of vectors, as lines of assembly.

/// `loads!("vmovdqu", "ymmword ptr"; "rsi" => "ymm0", "rsi + 32" => "ymm1")`.
macro_rules! loads {
    ($mov:literal, $ptr:literal; $($at:literal => $register:literal),+) => {
        concat!($($mov, " ", $register, ", ", $ptr, " [", $at, "]\n",)+)
    };
}

/// `stores!("vmovdqu", "ymmword ptr"; "ymm0" => "rdi", "ymm1" => "rdi + 32")`.
macro_rules! stores {
    ($mov:literal, $ptr:literal; $($register:literal => $at:literal),+) => {
        concat!($($mov, " ", $ptr, " [", $at, "], ", $register, "\n",)+)
    };
}
