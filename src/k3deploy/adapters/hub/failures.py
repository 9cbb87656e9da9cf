"""What an error of the Hub means for the person at the keyboard."""

from huggingface_hub import errors

from k3deploy.domain.errors import HubError


def retry_after_s(error: errors.HfHubHTTPError, attempt: int) -> float | None:
    """Seconds until another try makes sense; None when it does not."""
    status = error.response.status_code
    if status == 429:
        told = error.response.headers.get("Retry-After", "")
        return float(told) + 1.0 if told.isdecimal() else float(2**attempt)
    return float(2 ** (attempt - 1)) if status >= 500 else None


def renamed(repo: str, now: str) -> HubError:
    """The Hub answers for the old name too, but every cache and every launch by name goes by the one asked for."""
    return HubError(
        what=f"{repo} is called {now} now",
        why="it was renamed on the hub, or is written with other capitals there",
        fix=f"set model.repo to {now} in the profile",
        context={"found": now, "wanted": repo},
    )


def explain(error: Exception, repo: str, revision: str, *, has_token: bool) -> HubError:
    """The K3 error for what huggingface_hub or its HTTP client raised."""
    context: dict[str, object] = {"repo": repo, "revision": revision}
    if isinstance(error, errors.HfHubHTTPError):
        return _answered(error, context, has_token=has_token)
    if isinstance(error, errors.OfflineModeIsEnabled):
        return HubError(
            what="the hub is not asked in offline mode",
            why="HF_HUB_OFFLINE is set",
            fix="unset HF_HUB_OFFLINE and run the same command again",
            context=context,
        )
    return HubError(
        what="the hub cannot be reached",
        why=f"{type(error).__name__}: {error}",
        fix="check the network from here, HTTPS_PROXY and HF_ENDPOINT, then run the same command again",
        context=context,
    )


def _answered(error: errors.HfHubHTTPError, context: dict[str, object], *, has_token: bool) -> HubError:
    status, repo = error.response.status_code, context["repo"]
    context["answer"] = f"HTTP {status}"
    login = "" if has_token else "log in (hf auth login, or set HF_TOKEN); "
    if isinstance(error, errors.GatedRepoError):
        return HubError(
            what=f"{repo} is gated, and this account may not read it",
            why="its owners let in whom they have accepted" if has_token else "no token was sent",
            fix=f"{login}ask for access at https://huggingface.co/{repo}, then run the same command again",
            context=context,
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return HubError(
            what=f"{repo} has no revision {context['revision']}",
            why="it is mistyped, or its history was rewritten",
            fix="correct model.revision in the profile: a full commit of that repository",
            context=context,
        )
    if isinstance(error, errors.RemoteEntryNotFoundError):
        return HubError(
            what=f"{repo} has no such file at {context['revision']}: {error.response.url.path.rpartition('/')[2]}",
            why="the list of files names it, so that list is of another repository or commit",
            fix="get the list anew from the hub (leave --manifest out), then run the same command again",
            context=context,
        )
    if isinstance(error, errors.DisabledRepoError):
        return HubError(
            what=f"{repo} is disabled", why="the hub serves it to nobody", fix="use another repository", context=context
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return HubError(
            what=f"the hub shows no repository {repo}",
            why="it does not exist, or it is private and this account may not see it",
            fix=f"{login}check model.repo in the profile",
            context=context,
        )
    if status == 401:
        return HubError(
            what="the hub does not accept this token",
            why="it is mistyped, revoked or expired; a bad token closes public repositories too",
            fix="make a new one (hf auth login), or unset HF_TOKEN for a public repository",
            context=context,
        )
    if status == 429:
        return HubError(
            what="the hub answers no more requests from here for now",
            why="too many were sent from this account or address; without a token the limit is lower",
            fix=f"{login}wait five minutes, then run the same command again",
            context=context,
        )
    return HubError(
        what=f"the hub answered HTTP {status}",
        why=error.server_message or "it said no more",
        fix="look at https://status.huggingface.co, then run the same command again",
        context=context,
    )
