"""Settings as keyword arguments."""
import os
from typing import TYPE_CHECKING, Any, Callable, List, Literal, Mapping, Optional, Sequence, Tuple, Union

if TYPE_CHECKING:
    PathLike = os.PathLike[str]
else:
    PathLike = os.PathLike  # Python 3.8 has no os.PathLike[str]

Path = Union[str, PathLike]
# A number, a text, a path, a boolean, or a list of texts. None: the setting is not given.
SettingValue = Union[None, bool, int, float, str, PathLike, Sequence[Union[str, int, PathLike]]]
Log = Callable[[Literal["result", "note", "warning"], str], object]


def path_text(path: Optional[Path]) -> str:
    return "" if path is None else os.fsdecode(path)


def _value(name: str, value: Any) -> Any:
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:  # a scalar of NumPy
        value = value.item()
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        texts = []
        for item in value:
            if isinstance(item, bool) or not isinstance(item, (str, int, os.PathLike)):
                raise TypeError(f"{name}: a list must have texts, not {type(item).__name__}")
            texts.append(os.fsdecode(item) if isinstance(item, os.PathLike) else str(item))
        return texts
    raise TypeError(f"{name}: must be a number, a text, a path, a boolean or a list of texts, "
                    f"not {type(value).__name__}")


def options(settings: Mapping[str, Any]) -> List[Tuple[str, Any]]:
    """The settings as the library takes them."""
    return [(name, _value(name, value)) for name, value in settings.items() if value is not None]
