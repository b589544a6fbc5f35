//! How the parts of a record are written: as text, each in its own way.
//!
//! All are read as `String`: what has an escape in it, as any JSON writer may choose, has no place in the
//! input that a `&str` could refer to.

pub(super) mod session {
    use alloc::string::String;
    use alloc::sync::Arc;

    use serde::{Deserialize, Deserializer, Serializer, de};

    use super::super::is_name;

    pub(in super::super) fn serialize<S: Serializer>(
        name: &str,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        out.serialize_str(name)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        input: D,
    ) -> Result<Arc<str>, D::Error> {
        let name = String::deserialize(input)?;
        if !is_name(&name) {
            return Err(de::Error::custom("no session has such a name"));
        }
        Ok(name.into())
    }
}

pub(super) mod mode {
    use alloc::string::String;

    use serde::{Deserialize, Deserializer, Serializer, de};

    use crate::lock::Mode;

    pub(in super::super) fn serialize<S: Serializer>(
        mode: &Mode,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        out.serialize_str(match mode {
            Mode::Exclusive => "x",
            Mode::Shared => "s",
        })
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        input: D,
    ) -> Result<Mode, D::Error> {
        match String::deserialize(input)?.as_str() {
            "x" => Ok(Mode::Exclusive),
            "s" => Ok(Mode::Shared),
            _ => Err(de::Error::custom("a mode is x or s")),
        }
    }
}

pub(super) mod left {
    use alloc::string::String;

    use serde::{Deserialize, Deserializer, Serializer, de};

    use crate::lock::Previous;

    pub(in super::super) fn serialize<S: Serializer>(
        left: &Previous,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        out.serialize_str(match left {
            Previous::Clean => "clean",
            Previous::Abandoned => "abandoned",
        })
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        input: D,
    ) -> Result<Previous, D::Error> {
        match String::deserialize(input)?.as_str() {
            "clean" => Ok(Previous::Clean),
            "abandoned" => Ok(Previous::Abandoned),
            _ => Err(de::Error::custom("a grant ends clean or abandoned")),
        }
    }
}

pub(super) mod number {
    use alloc::string::String;

    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(in super::super) fn serialize<S: Serializer>(
        number: &u64,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        out.collect_str(number)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        input: D,
    ) -> Result<u64, D::Error> {
        let text = String::deserialize(input)?;
        text.parse().map_err(|_| de::Error::custom("no number"))
    }
}

pub(super) mod some_fence {
    use alloc::string::String;

    use serde::{Deserialize, Deserializer, Serializer, de};

    use crate::ids::Fence;

    pub(in super::super) fn serialize<S: Serializer>(
        fence: &Option<Fence>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        match fence {
            Some(fence) => out.collect_str(fence),
            None => out.serialize_none(),
        }
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        input: D,
    ) -> Result<Option<Fence>, D::Error> {
        let text = String::deserialize(input)?;
        text.parse().map(Some).map_err(de::Error::custom)
    }
}
