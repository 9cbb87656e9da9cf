"""Image names: repository, tag, digest, and the run's pin that says which image every node must have. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from k3deploy.domain.profile.models import Engine

IMAGE_PIN: Final = "image"
ENGINE_VERSION_PIN: Final = "engine-version"

# Docker's word for an architecture, and the kernel's (`uname -m`).
_MACHINE_OF: Final = {"amd64": "x86_64", "arm64": "aarch64"}


def machine_of(architecture: str) -> str:
    """The kernel's word for Docker's: amd64 -> x86_64, arm64 -> aarch64; others are the same in both."""
    return _MACHINE_OF.get(architecture, architecture)


@dataclass(frozen=True)
class ImageRef:
    """A reference in parts: `[registry/]repository[:tag][@digest]`."""

    repository: str
    tag: str | None = None
    digest: str | None = None

    @staticmethod
    def parse(text: str) -> "ImageRef":
        name, _, digest = text.partition("@")
        # A colon before the last slash belongs to the registry's port.
        head, slash, last = name.rpartition("/")
        last, _, tag = last.partition(":")
        return ImageRef(head + slash + last, tag or None, digest or None)

    @property
    def text(self) -> str:
        """As Docker takes it. A digest says it all, so the tag is left out beside one."""
        if self.digest is not None:
            return f"{self.repository}@{self.digest}"
        return f"{self.repository}:{self.tag or 'latest'}"


def wanted_image(engine: Engine) -> ImageRef:
    """What the profile asks for: its digest where it gives one, else its tag."""
    found = ImageRef.parse(engine.image)
    return ImageRef(found.repository, found.tag, engine.digest or found.digest)


@dataclass(frozen=True)
class ImagePin:
    """The image that this run settled on: from then on every node must have exactly this digest.

    `asked` is what was resolved; `platforms` are "os/architecture", empty when the registry did not say.
    """

    asked: str
    repository: str
    digest: str
    platforms: tuple[str, ...] = ()

    @property
    def reference(self) -> str:
        """What is pulled and launched."""
        return f"{self.repository}@{self.digest}"

    @property
    def short_digest(self) -> str:
        """For people, who compare twelve digits and not sixty-four."""
        return short_digest(self.digest)

    def as_dict(self) -> dict[str, Any]:
        return {
            "asked": self.asked,
            "repository": self.repository,
            "digest": self.digest,
            "platforms": list(self.platforms),
        }

    @staticmethod
    def from_dict(body: Mapping[str, Any]) -> "ImagePin":
        return ImagePin(body["asked"], body["repository"], body["digest"], tuple(body["platforms"]))


def short_digest(digest: str) -> str:
    """sha256:5e73403702ab25ee... -> sha256:5e73403702ab."""
    algorithm, colon, digits = digest.partition(":")
    return f"{algorithm}{colon}{digits[:12]}"


def digest_of_repository(repository: str, digests: Sequence[str]) -> str | None:
    """The digest under which a local image was pulled from this repository; None when it wasn't.

    Docker lists names in full or in short: docker.io/lmsysorg/sglang is lmsysorg/sglang.
    """
    for name in digests:
        found = ImageRef.parse(name)
        if _short(found.repository) == _short(repository):
            return found.digest
    return None


def _short(repository: str) -> str:
    return repository.removeprefix("docker.io/").removeprefix("library/")
